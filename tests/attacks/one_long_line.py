# the same in one write
# ends: output
sys.stdout.write('x' * 9_000_000)
