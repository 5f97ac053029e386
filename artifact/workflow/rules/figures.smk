# One rule a figure, named after it: `snakemake fig_gemv_all_reduce`.
for figure, item in FIGURES.items():

    rule:
        """Draw one figure from tidy rows: PDF, PNG, SVG, and the CSV that redraws it."""
        message:
            "Draw {params.name}"
        name:
            figure
        input:
            src=closure("figures.__main__", f"figures.{figure.removeprefix('fig_')}"),
            data=needs(item),
        output:
            pdf=f"{RUN}/figures/{figure}.pdf",
            svg=report(
                f"{RUN}/figures/{figure}.svg",
                caption="../report/item.rst",
                category=item.group,
                subcategory="Figures",
                labels={"figure": figure.removeprefix("fig_").replace("_", " ")},
            ),
            png=f"{RUN}/figures/{figure}.png",
            rows=f"{RUN}/figures/{figure}.csv",
        log:
            f"{RUN}/logs/{figure}.log",
        benchmark:
            f"results/benchmarks/{figure}.tsv"
        resources:
            mem_mb=1500,
            runtime=5,
        params:
            caption=item.caption,
            options=options(item),
            name=figure,
            folder=output_folder,
        conda:
            "../../../environment.yml"
        shell:
            "python -m figures {params.name} --out {params.folder} {params.options:q} 2>&1 | tee {log}"
