r"""The words of math answers: which of them change a value, and which only name what is counted.

    5 eggs, 8 years old, 3 cups of tea    a counted noun: any words that are in no table here
    5 dozen, 8 万, about 8, 5 K           words that change a value. No rule skips them
    6 m/s east                            a direction
    5 million, 50 percent                 words that are part of the number

To add a word that changes a value, add it to CHANGING.
"""

from collections.abc import Sequence

from kinds.math.lexer import END, Token

PERCENT = ("%", "percent", "pct", "percentage")
NUMBER_WORDS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}  # 5 million is 5 times 10^6
SPELLED_NUMBERS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
                   "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16}  # fmt: skip
ORDINALS = ("th", "st", "nd", "rd")
ARTICLES = ("a", "an", "the")

# Words that doubt an answer, and words that change a value or give a second one. A counted noun has none of them.
DOUBTS = {"maybe", "perhaps", "possibly", "probably", "wait", "otherwise", "instead", "wrong", "false", "incorrect",
          "guess", "either", "neither", "nor"}  # fmt: skip
CHANGING = """
    lakhs crores sixths seventh sevenths eighths ninth ninths itself negated reversed quadruple quadrupled est etc
    others onward onwards undefined nan nope infinite null
    not non no never about approximately approx around nearly almost roughly circa both all any but then versus vs is
    are was be equal equals if unless when where whereas while because since so for only plus minus negative positive
    more less least most greater fewer than over under above below between from to through except excluding without
    hundreds thousands millions dozen dozens score pair pairs couple half halves third thirds fourth fourths fifth
    fifths sixth eighth tenth tenths hundredth hundredths thousandth thousandths quarter quarters ones tens twice
    thrice double triple squared cubed square cubic root factorial choose point mod modulo base power kilo
    mega zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy
    eighty ninety reciprocal inverse opposite multiplied divided doubled tripled halved raised invalid unknown
    this that lakh crore mil x k e i cannot unlikely repeating recurring binary octal hex hexadecimal upwards bn mn
    myriad myriads mille permille ish estimated"""
# They change a value that they follow: 5 minimum. In a label they only say which value it is: Minimum = 5.
BOUNDS = {"minimum", "maximum", "min", "max", "gross", "remainder", "higher", "lower", "exponent", "complement",
          "conjugate", "transpose"}  # fmt: skip
_IN_LABELS = {*BOUNDS, "percent", "percentage"}  # words of a label that say which number it is: Percentage = 28\%
_CHANGES = {*DOUBTS, *CHANGING.split(), *PERCENT, *NUMBER_WORDS}
_CHANGING_ENDS = ("teen", "illion", "illions", "illionth", "illionths", "fold", "n't", *"十百千万萬亿億半")
# A direction after a unit has one of the first words, and the others of _AIMING between them.
_AIMS = {"right", "left", "east", "west", "north", "south", "horizontal", "vertical", "upward", "downward", "upwards",
         "downwards", "northeast", "northwest", "southeast", "southwest"}  # fmt: skip
_AIMING = {*_AIMS, "to", "the", "of", "above", "below", "due"}
MAX_WORDS = 6  # of a counted noun


def changes_value(word: str) -> bool:
    """Can this word change a value? dozen, non-zero, eighteen, 5 万."""
    return bool(_CHANGES & {word, *word.split("-")}) or word.endswith(_CHANGING_ENDS) or word[0] in _CHANGING_ENDS


def noun_of(found: Sequence[Token], label: bool = False) -> str:
    """Return the words of a counted noun, or of a label, in the singular. "" if a word may change a value.

    eggs    cups of tea    Minimum value, which is only a label
    """
    words: list[str] = []
    found = found[1:-1] if [token.text for token in (*found[:1], *found[-1:])] == ["(", ")"] else found
    for token, before in zip(found, [END, *found], strict=False):
        word = "per" if token.text == "/" and words else token.text.casefold()
        letters = token.kind in ("run", "word") and (len(word) > 1 or word == "a" or not word.isascii())
        if not is_full_stop(token, before):
            changing = word in BOUNDS or changes_value(word)
            if not (letters or word == "per") or (changing and not (label and word in _IN_LABELS)):
                return ""
            words.append(word.removesuffix("s").removesuffix("e"))
    noun = "".join(words)
    starts = found[0].text.casefold() != "the" if found else False  # 5 of the eggs, but not 5 the second
    return noun if starts and len(words) <= MAX_WORDS and (label or "percent" not in noun) else ""  # 48% per cent


def is_full_stop(token: Token, before: Token) -> bool:
    """Is it the full stop of an abbreviation: sq. ft.?"""
    return token.text == "." and before.kind in ("run", "word")


def without_direction(found: list[Token], degrees: bool) -> tuple[list[Token], str]:
    """Cut off the direction of a quantity: m/s to the right, m/s east, ° above the horizontal."""
    start = len(found)
    while start and found[start - 1].text.casefold() in _AIMING:
        start -= 1
    aims = [token.text.casefold() for token in found[start:]]
    return (found[:start], " ".join(aims)) if (start or degrees) and {*aims} & _AIMS else (found, "")
