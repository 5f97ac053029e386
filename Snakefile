# Two commands from a clone: `make all`, or `snakemake all` in the environment. Targets are named by what they show.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


report: "artifact/workflow/report/workflow.rst"


include: "artifact/workflow/rules/common.smk"
include: "artifact/workflow/rules/build.smk"
include: "artifact/workflow/rules/verify.smk"
include: "artifact/workflow/rules/measure.smk"
include: "artifact/workflow/rules/model.smk"
include: "artifact/workflow/rules/figures.smk"
include: "artifact/workflow/rules/tables.smk"
include: "artifact/workflow/rules/claims.smk"
include: "artifact/workflow/rules/report.smk"
include: "artifact/workflow/rules/package.smk"
include: "artifact/workflow/rules/targets.smk"
