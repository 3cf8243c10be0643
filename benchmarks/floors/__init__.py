"""The same by hand, without anything that makes it safe: what the others are compared to. Nothing of ours."""
