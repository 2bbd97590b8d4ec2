# a crash of the compiler
# ends: crashed error
exec('x = ' + '-' * 200_000 + '1')
