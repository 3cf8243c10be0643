"""How fast, against what: each file asks one question, `python -m benchmarks` asks them all, as ratios in one run."""
