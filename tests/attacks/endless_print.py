# output that fills the trainer's memory
# ends: output
while True: print('x' * 10**6)
