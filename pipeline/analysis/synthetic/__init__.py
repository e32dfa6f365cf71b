"""Results folders of any size with known true effects: the fixture of analysis and benchmarks."""
