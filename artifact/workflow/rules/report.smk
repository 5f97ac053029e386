rule rule_graph:
    """Draw the tasks and what each needs (T1 to T6), for the appendix and the report."""
    message:
        "Draw the tasks"
    input:
        src=closure("artifact.tasks"),
    output:
        svg=report(
            f"{RUN}/figures/tasks.svg",
            caption="../report/tasks.rst",
            category="Setting",
            subcategory="Figures",
            labels={"figure": "tasks"},
        ),
    log:
        f"{RUN}/logs/rule_graph.log",
    benchmark:
        "results/benchmarks/rule_graph.tsv"
    resources:
        mem_mb=1000,
        runtime=5,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.tasks --out {output.svg} 2>&1 | tee {log}"


rule notebook:
    """Execute the notebook that walks a reader through one claim of each kind."""
    message:
        "Execute the notebook"
    input:
        src=closure("artifact.notebook", "artifact.execute_notebook"),
        claims=f"{RUN}/claims.json",
        resources=data("resources"),
        model=[model_file(name) for name in ("reduction", "traffic")],
    output:
        ipynb=f"{RUN}/notebook.ipynb",
        html=f"{RUN}/notebook.html",
    log:
        f"{RUN}/logs/notebook.log",
    benchmark:
        "results/benchmarks/notebook.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        run=run_folder,
    conda:
        "../../../environment.yml"
    shell:
        "python -m artifact.execute_notebook --run {params.run} --out {output.ipynb} --html {output.html} 2>&1 | tee {log}"
