rule verify_cases:
    """Compare every fused operator with its float64 reference on the backend of this run; a wrong result fails the run."""
    message:
        "Verify the fused operators on {params.backend}: {wildcards.scope}"
    input:
        src=closure("experiments.verify", "artifact.record"),
    output:
        rows=f"{RUN}/verify/{{scope}}.csv",
        provenance=f"{RUN}/verify/{{scope}}.json",
    log:
        f"{RUN}/logs/verify_cases.{{scope}}.log",
    benchmark:
        f"results/benchmarks/verify_cases.{BACKEND}.{{scope}}.tsv"
    threads: workflow.cores if BACKEND == "gpu" else 2
    resources:
        mem_mb=6000,
        runtime=60,
        gpu=1 if BACKEND == "gpu" else 0,
    params:
        selection=selection,
        seed=CONFIG.seed,
        backend=backend_name,
        machine=MACHINE,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record --kind verify --out {output.rows} --backend {params.backend} --machine {params.machine}"
        " --seed {params.seed} --sources experiments.verify --keep results/{params.backend}/failed"
        " -- python -m experiments.verify --backend {params.backend} {params.selection} --out {output.rows} 2>&1 | tee {log}"


rule run_mutants:
    """Break the kernels on purpose, rule by rule, and see which report of the emulator catches each; a survivor fails the run."""
    message:
        "Hunt mutants: {wildcards.scope}"
    input:
        src=closure("emulator.mutants.campaign", "experiments.verify.subjects", "artifact.record"),
    output:
        rows="results/emulator/mutants/{scope}.csv",
        provenance="results/emulator/mutants/{scope}.json",
    log:
        "results/emulator/logs/run_mutants.{scope}.log",
    benchmark:
        "results/benchmarks/run_mutants.{scope}.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        selection=mutant_selection,
        seed=CONFIG.seed,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record --kind campaign --out {output.rows} --backend emulator --machine cpu"
        " --seed {params.seed} --sources emulator.mutants.campaign experiments.verify.subjects --keep results/emulator/failed"
        " -- python -m emulator campaign {params.selection} --out {output.rows} 2>&1 | tee {log}"
