# a C loop that no signal handler interrupts
# ends: error timeout
9**9**9**9
