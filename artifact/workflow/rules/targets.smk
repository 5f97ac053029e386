# Goals without files of their own. `all` is the default.
localrules:
    all,
    full,
    smoke,
    verify,
    build,
    model,
    figures,
    tables,
    claims,


rule smoke:
    """Kick the tires: one world size of every operator verified, the operators listed, this machine described."""
    input:
        f"{RUN}/hardware.json",
        f"{RUN}/verify/smoke.csv",
        "results/build/operators.csv",


rule verify:
    """Every correctness case of the configured scope, and the mutants."""
    input:
        data("verify"),


rule build:
    """All kernels compiled ahead of time, and the registered operators."""
    input:
        data("resources"),
        data("operators"),


rule model:
    """All rows of the timing model, the scale-out simulation and the validation."""
    input:
        [model_file(name) for names in MODEL_STEPS.values() for name in names],


rule figures:
    """Every figure."""
    input:
        [f"{RUN}/figures/{figure}.pdf" for figure in FIGURES],
        f"{RUN}/figures/tasks.svg",


rule tables:
    """Every table."""
    input:
        [f"{RUN}/tables/{table}.tex" for table in TABLES],


rule claims:
    """The verdicts on all claims."""
    input:
        f"{RUN}/claims.json",


rule all:
    """Everything that this machine can do, on a sample of the correctness cases."""
    default_target: True
    input:
        rules.smoke.input,
        rules.verify.input,
        rules.build.input,
        rules.model.input,
        rules.figures.input,
        rules.tables.input,
        rules.claims.input,
        f"{RUN}/notebook.html",


rule full:
    """As `all`, and every correctness case."""
    input:
        rules.all.input,
        f"{RUN}/verify/full.csv",


onsuccess:
    print(ending.make_report(Path(RUN), Path("results/report.html")), end="")
    print(ending.last_lines(Path(RUN), BACKEND, Path("results/report.html")))
