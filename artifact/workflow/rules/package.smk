rule package:
    """Put sources, reference data and this run's results in one archive, with checksums and RO-Crate metadata."""
    message:
        "Pack the archive"
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
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        run=run_folder,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.package --run {params.run} --out {output.archive} --checksums {output.checksums} 2>&1 | tee {log}"
