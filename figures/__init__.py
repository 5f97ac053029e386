"""Figures, one module each: tidy rows in, one drawing out. No number is typed here; looks are in `style.py` and `fusedcc.mplstyle`.

A figure module has `rows(inputs)` (its tidy frame, saved beside the drawing) and `draw(rows)` (the drawing, from that frame alone).
"""

CATALOG = {
    "fig_gemv_all_reduce": "gemv_all_reduce",
    "fig_embedding_all_to_all": "embedding_all_to_all",
    "fig_gemm_all_to_all": "gemm_all_to_all",
    "fig_intranode_model": "intranode_model",
    "fig_internode_model": "internode_model",
    "fig_scale_out": "scale_out",
    "fig_scale_out_faults": "scale_out_faults",
    "fig_workload_sweep": "workload_sweep",
    "fig_destination_order": "destination_order",
    "fig_strategies": "strategies",
    "fig_link_traffic": "link_traffic",
    "fig_order_skew": "order_skew",
    "fig_occupancy": "occupancy",
    "fig_model_validation": "model_validation",
}
