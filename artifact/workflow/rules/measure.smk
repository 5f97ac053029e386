rule measure_operator:
    """Time the fused operator and all baselines on this machine's GPUs: CUDA graphs, arms interleaved, raw samples kept."""
    message:
        "Measure {wildcards.operator} on {params.machine}"
    input:
        src=closure("experiments.measure", "artifact.record"),
        verified=f"{RUN}/verify/{CONFIG.scope}.csv",
    output:
        rows="results/gpu/timing/{operator}.csv",
        provenance="results/gpu/timing/{operator}.json",
    log:
        "results/gpu/logs/measure_operator.{operator}.log",
    benchmark:
        "results/benchmarks/measure_operator.{operator}.tsv"
    threads: workflow.cores
    resources:
        mem_mb=32000,
        runtime=30,
        gpu=1,
    params:
        samples=CONFIG.gpu.samples,
        machine=CONFIG.gpu.machine,
        seed=CONFIG.seed,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record --kind timing --out {output.rows} --backend gpu --machine {params.machine}"
        " --seed {params.seed} --sources experiments.measure --keep results/gpu/failed --resume results/gpu/resume"
        " -- python -m experiments.measure --operator {wildcards.operator} --machine {params.machine}"
        " --samples {params.samples} --out {{partial}} 2>&1 | tee {log}"
