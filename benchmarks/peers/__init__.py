"""Other libraries doing the same. Each file imports its library and the stopwatch, nothing of ours."""
