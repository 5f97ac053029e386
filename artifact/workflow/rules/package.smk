rule package:
    input:
        src=closure("artifact.package"),
        claims=f"{RUN}/claims.json",
        tables=[f"{RUN}/tables/{table}.csv" for table in TABLES],
        figures=[f"{RUN}/figures/{figure}.csv" for figure in FIGURES],
    output:
        archive=f"results/package/fusedcc-{VERSION}.tar.gz",
        checksums=f"results/package/fusedcc-{VERSION}.sha256",
    log:
        "results/logs/package.log",
    benchmark:
        "results/benchmarks/package.tsv"
    conda:
        "../../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        run=RUN,
    """Put sources, reference data and this run's results in one archive, with checksums and RO-Crate metadata."""
    message:
        "Pack the archive"
    shell:
        "{PYTHON:q} -m artifact.package --run {params.run} --out {output.archive} --checksums {output.checksums} 2>&1 | tee {log}"
