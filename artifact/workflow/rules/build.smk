rule build_kernels:
    """Compile every kernel ahead of time for NVIDIA and AMD GPUs, count its resources, lint the ordering in its assembly."""
    message:
        "Compile every kernel ahead of time"
    input:
        src=closure("kernels.build", "artifact.record"),
    output:
        rows="results/build/resources.csv",
        provenance="results/build/resources.json",
    log:
        "results/logs/build_kernels.log",
    benchmark:
        "results/benchmarks/build_kernels.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=15,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record --kind resources --out {output.rows} --backend build --machine cpu"
        " --sources kernels.build -- python -m kernels.build --out {output.rows} --jobs {threads} 2>&1 | tee {log}"


rule list_operators:
    """List the registered PyTorch operators, their faces and signatures."""
    message:
        "List the PyTorch operators"
    input:
        src=closure("artifact.operators", "kernels.ops", "artifact.record"),
    output:
        rows="results/build/operators.csv",
        provenance="results/build/operators.json",
    log:
        "results/logs/list_operators.log",
    benchmark:
        "results/benchmarks/list_operators.tsv"
    resources:
        mem_mb=2000,
        runtime=5,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.record --kind operators --out {output.rows} --backend build --machine cpu"
        " --sources kernels.ops -- python -m artifact.operators --out {output.rows} 2>&1 | tee {log}"
