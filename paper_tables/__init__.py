"""Tables, one module each: tidy rows in, one frame out, rendered as LaTeX (booktabs), Markdown, HTML and CSV. No number is typed here."""

CATALOG = (
    "claims",
    "kernel_resources",
    "mutants",
    "simulation_setup",
    "strategies",
    "system",
    "time",
    "verification",
    "workloads",
)
