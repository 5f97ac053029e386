rule model_intranode:
    """Replay every operator's plan in the timing model, on every machine profile: times, bands, skew, occupancy, traffic."""
    message:
        "Replay the plans in the timing model"
    input:
        src=closure("experiments.model", "artifact.record"),
    output:
        rows=[model_file(name) for name in MODEL_STEPS["intranode"]],
        provenance=[f"results/model/{name}.json" for name in MODEL_STEPS["intranode"]],
    log:
        "results/logs/model_intranode.log",
    benchmark:
        "results/benchmarks/model_intranode.tsv"
    threads: 2
    resources:
        mem_mb=3000,
        runtime=15,
    params:
        record=" ".join(
            f"--kind {n if n != 'intranode' else 'timing'} --out {model_file(n)}" for n in MODEL_STEPS["intranode"]
        ),
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record {params.record} --backend model --machine profiles --sources experiments.model"
        " -- python -m experiments.model intranode --out results/model 2>&1 | tee {log}"


rule model_scaleout:
    """Simulate DLRM training on up to 128 nodes, bulk and fused; sweep the workload, the topology and faults."""
    message:
        "Simulate DLRM training on up to {params.max_nodes} nodes"
    input:
        src=closure("experiments.model", "artifact.record"),
    output:
        rows=[model_file(name) for name in MODEL_STEPS["scaleout"]],
        provenance=[f"results/model/{name}.json" for name in MODEL_STEPS["scaleout"]],
    log:
        "results/logs/model_scaleout.log",
    benchmark:
        "results/benchmarks/model_scaleout.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        record=" ".join(f"--kind {n} --out {model_file(n)}" for n in MODEL_STEPS["scaleout"]),
        max_nodes=CONFIG.model.max_nodes,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record {params.record} --backend model --machine profiles --sources experiments.model"
        " -- python -m experiments.model scaleout --max-nodes {params.max_nodes} --out results/model 2>&1 | tee {log}"


rule model_validate:
    """Fit the timing model to half of the recorded measurements and judge it on the other half."""
    message:
        "Validate the timing model against recorded measurements"
    input:
        src=closure("experiments.model", "artifact.record"),
        recorded=manifest.all_files(),
    output:
        rows=[model_file(name) for name in MODEL_STEPS["validate"]],
        provenance=[f"results/model/{name}.json" for name in MODEL_STEPS["validate"]],
    log:
        "results/logs/model_validate.log",
    benchmark:
        "results/benchmarks/model_validate.tsv"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        record=" ".join(f"--kind {n} --out {model_file(n)}" for n in MODEL_STEPS["validate"]),
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record {params.record} --backend model --machine profiles --sources experiments.model"
        " -- python -m experiments.model validate --reference experiments/reference --out results/model 2>&1 | tee {log}"
