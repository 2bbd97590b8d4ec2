# a timer that outlives the job
# ends: crashed
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(1e6)
