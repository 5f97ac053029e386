# One rule a table, named after it: `snakemake table_claims`.
for table, item in TABLES.items():

    rule:
        """Render one table from tidy rows: LaTeX, Markdown, HTML and CSV of one frame."""
        message:
            "Render {params.name}"
        name:
            table
        input:
            src=closure("paper_tables.__main__", f"paper_tables.{table.removeprefix('table_')}"),
            data=needs(item),
        output:
            tex=f"{RUN}/tables/{table}.tex",
            md=f"{RUN}/tables/{table}.md",
            rows=f"{RUN}/tables/{table}.csv",
            html=report(
                f"{RUN}/tables/{table}.html",
                caption="../report/item.rst",
                category=item.group,
                subcategory="Tables",
                labels={"table": table.removeprefix("table_").replace("_", " ")},
            ),
        log:
            f"{RUN}/logs/{table}.log",
        benchmark:
            f"results/benchmarks/{table}.tsv"
        resources:
            mem_mb=1000,
            runtime=5,
        params:
            caption=item.caption,
            options=options(item),
            name=table,
            folder=output_folder,
        conda:
            "../../../environment.yml"
        shell:
            "python -m paper_tables {params.name} --out {params.folder} {params.options:q} 2>&1 | tee {log}"
