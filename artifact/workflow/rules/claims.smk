rule hardware:
    """Write down what this machine can run and what is skipped, and why."""
    message:
        "Look at this machine"
    input:
        src=closure("artifact.doctor"),
    output:
        f"{RUN}/hardware.json",
    log:
        f"{RUN}/logs/hardware.log",
    benchmark:
        "results/benchmarks/hardware.tsv"
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        backend=BACKEND,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.doctor --backend {params.backend} --json {output} 2>&1 | tee {log}"


rule judge_claims:
    """Judge every claim on the evidence of this run, of the recorded measurements and of the timing model."""
    message:
        "Judge the claims"
    input:
        src=closure("artifact.judge"),
        hardware=f"{RUN}/hardware.json",
        verify=data("verify"),
        resources=data("resources"),
        operators=data("operators"),
        timing=timing_files(),
        model=[model_file(name) for names in MODEL_STEPS.values() for name in names],
    output:
        rows=f"{RUN}/claims.json",
        text=f"{RUN}/claims.md",
    log:
        f"{RUN}/logs/judge_claims.log",
    benchmark:
        "results/benchmarks/judge_claims.tsv"
    resources:
        mem_mb=1500,
        runtime=5,
    params:
        timing="--measured" if BACKEND == "gpu" else "--recorded",
        backend=BACKEND,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.judge --backend {params.backend} --verify {input.verify} --resources {input.resources}"
        " --operators {input.operators} {params.timing} {input.timing} --model {input.model}"
        " --out {output.rows} --text {output.text} 2>&1 | tee {log}"


rule claims_strict:
    """Fail if the evidence of this run contradicts a claim."""
    message:
        "Look for contradicted claims"
    input:
        src=closure("artifact.judge"),
        rows=f"{RUN}/claims.json",
    output:
        f"{RUN}/claims_strict.txt",
    log:
        f"{RUN}/logs/claims_strict.log",
    benchmark:
        "results/benchmarks/claims_strict.tsv"
    resources:
        mem_mb=1000,
        runtime=5,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.judge --strict {input.rows} --text {output} 2>&1 | tee {log}"
