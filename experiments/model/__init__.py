"""Timing model of the operators on one node and of DLRM training on many; `README.md` states equations and assumptions."""
