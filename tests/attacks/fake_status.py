# an exit status that means something to the sandbox
# ends: unparsed
print('x', flush=True); os._exit(65)
