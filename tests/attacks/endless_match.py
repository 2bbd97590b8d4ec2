# a regular expression that takes exponential time
# ends: timeout
import re
re.match('(a*)*b', 'a' * 60)
