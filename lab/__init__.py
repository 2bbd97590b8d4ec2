"""The course: fill in the paper's functions, write the loop, predict its runs. Begin with lab/README.md."""
