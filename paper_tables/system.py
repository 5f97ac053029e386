"""Machines: every profile of the timing model, and this machine as it was found."""

import pandas as pd

from .inputs import Inputs


def rows(inputs: Inputs) -> pd.DataFrame:
    profiles = inputs.of_model("machine_profiles").assign(origin="profile of the timing model")
    document = inputs.document("hardware")
    here = {
        "system": document["system"],
        "processor": document["processor"],
        "cores": document["cores"],
        "GPUs": len(document["gpus"]),
    }
    here |= {f"version of {name}": value for name, value in document["versions"].items()}
    facts = pd.DataFrame(
        [
            {
                "machine": "this machine",
                "field": k,
                "value": "" if v is None else v,
                "unit": "",
                "source": "read",
                "origin": "this run",
            }
            for k, v in here.items()
        ]
    )
    return pd.concat([profiles, facts], ignore_index=True)
