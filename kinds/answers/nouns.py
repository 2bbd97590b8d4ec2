r"""Words behind a value: do they only say what it counts, or its direction, or do they change it?

A noun is any words that cannot change the value (5 eggs, 8 years old, 3 cups of tea), so 5 dozen, 8 万 and 5 K have
none. A direction is "to the right" in 6 m/s to the right. Words behind a unit stay in the tree: two answers that both
have some must have the same, so 5 kJ released is not 5 kJ absorbed.

To add                          add
a word that changes a value     it to CHANGING, or to FOREIGN_WORDS if it is not English. No rule skips it: 5 dozen,
                                8 万, about 8. Words in no table only name what is counted
a script                        its name in Unicode to SCRIPTS, and its words that change a value to FOREIGN_PARTS.
                                Words in other scripts are unreadable
"""

import re
import unicodedata
from collections.abc import Sequence

from kinds.answers.lexer import END, Token
from kinds.answers.tables import PERCENT, POWERS_OF_TEN, SPELLED_NUMBERS
from kinds.patterns import forward

# Words that doubt an answer, and words that change a value or give a second one. A counted noun has none of them.
DOUBTS = {"maybe", "perhaps", "possibly", "probably", "wait", "otherwise", "instead", "wrong", "false", "incorrect",
          "guess", "unsure", "either", "neither", "nor"}  # fmt: skip
CHANGING = """
    lakhs crores itself negated reversed quadruple quadrupled est etc
    others onward onwards undefined nan nope infinite null not non no never about approximately approx around
    nearly almost roughly circa both all any but then versus vs is are was be equal equals if unless when where
    whereas while because since so for only plus minus negative positive more less least most greater fewer than
    over under above below between from to through except excluding without hundreds thousands millions dozen
    dozens score pair pairs couple half halves quarter quarters ones tens twice thrice double triple squared cubed
    square cubic root factorial choose point mod modulo base power kilo mega giga hecto deca deci centi milli micro
    nano pico semi demi reciprocal inverse opposite multiplied divided doubled tripled halved raised invalid
    unknown this that lakh crore mil x k e i cannot unlikely repeating recurring binary octal hex hexadecimal
    upwards bn mn myriad myriads mille permille permil ish estimated approximate exclusive grand mio mrd bio tsd
    bps basis fewest lesser lessened short shy off debt loss deficit missing too scores factorials plenty
    percentile percentiles logarithm log inverted conjugated shortfall hemi umpteen couples zillion gazillion thou
    bil tril tn centum mln mld mlrd tys dz doz trio trios brace rounded truncated give thereabouts thereabout
    ballpark"""
# They change a value that they follow: 5 minimum. In a label they only say which value it is: Minimum = 5.
BOUNDS = {"minimum", "maximum", "min", "max", "gross", "remainder", "higher", "lower", "exponent", "complement",
          "conjugate", "transpose"}  # fmt: skip
IN_LABELS = {*BOUNDS, "percent", "percentage", "power", "loss"}  # words of a label that say which number it is
# They change a value right after it. Later they are counted: 5 squares may be 25, 5 unit squares are 5.
COUNTED_POWERS = {"squares", "cubes", "roots", "powers", "inverses"}
CHANGING_ENDS = ("teen", "illion", "illions", "illionth", "illionths", "fold", "n't")
# Words of other languages that change a value: whole words, patterns for starts of words, and patterns for any part.
FOREIGN_WORDS = """
    mill mila mijë mijëra miia mii bin yüz yüzde ribu ratus juta puluh elfu laki libo daan ezer száz fél
    sata sataa sada tuhat sto sta cien zehn elf zwölf hälfte tiers demie moitié pour por
    centinaia migliaia decine decina metà terzi terzo quarti quarto mezzo mezza millar millares mitad medio tercio
    tercios cuarto cuartos cento centos metade terço terços meio dezena dezenas milhar milhares derde kwart honderd
    honderden paar halve halv halva hundra tiotal dussin kvart tredjedel tredjedelar pół połowa tuzin kopa setki
    tisíc tisíce polovina třetina čtvrtina tá chục trăm nghìn ngàn vạn triệu tỷ tỉ rưỡi phần yarım buçuk çeyrek çift
    setengah sepertiga seperempat pasang belas puoli fele harmad negyed jumătate sute sută zeci zece simt simti
    simts šimtas šimtai šimtų simtai posto pola polovica stotina stotine sajad centaines centaine dizaine dizaines
    milliers millier vingt vingts deux trois zwei drei zehntausend decenas decena centenas centena centenares dobro
    doble doppelt dreifach doppio triplo dobbelt dubbel sotto moins menos meno minder weniger mindre senza
    ohne sans sin míle céad þúsund hundrað tylft libong daang ewu kun dubu faiz ming ehun ducia milers dausend
    duisend qind përqind schock gros snes grosses stovky stovek stovka desítky desítek đôi etwa ungefähr environ
    ca aproximadamente unos casi fünftel quinto quintos"""
FOREIGN_STARTS = """
    m[iy]l++[iyjh]*+[oóõöãauú] [bt]r?[iy]l++[iyjh]*+[oóõöãauú] kvadril quadril tausend duizend tusen tisíc
    tysi tūkstan tūkstoš tuhan tuhat tisuć hiljad hundert hundre dutzend dozij dozzin douzain dozen docen
    dúzi duzi tuzin tucet tucat tucá düzin lusin tusin dussin dotzen dosen tosin tucto procent prozent prosent
    prósent protsent persen porcent porcien perzent pourcent pourmil promil százal drittel viertel achtel
    zehntel vingtaine quinzaine trentaine quarantaine cinquantaine soixantaine
    veinten treinten ventin trentin ciento quinient doscient trescient halbe hälft szász"""
FOREIGN_PARTS = """
    тыс тисяч ^мил$ миллион миллиард мільйон млн млрд трлн хиляд хиљад мянга мың мең илјад тыщ сотн сотен
    ^сот$ ^сто$ стотин двест дюжин процент відсот проценат половин ^полтор трет четвер десят ^пар[аыу]?$
    минус плюс больше меньше около ^без$ примерно промил ноль מיליון מיליארד אלף אלפ מאה מאות אחוז חצי תריסר רבע
    שליש זוג ألف آلاف مليون ملايين مليار مئة مئات مائة نصف ربع ثلث دزينة زوج هزار میلیون لاکھ کروڑ
    लाख करोड़ हज़ार हजार सौ सैकड़ अरब दर्जन प्रतिशत आध जोड़ डेढ़ ढाई ล้าน พัน หมื่น แสน ร้อย สิบ ครึ่ง โหล
    เปอร์เซ็นต์ คู่ เท่า กว่า 만 억 천 백 십 조 반 배 쌍 퍼센트 프로 할 다스 분의 이상 이하 초과 약
    [十百千万萬亿億兆零〇一二三四五六七八九廿卅半倍成割折打双對对雙余餘多几幾约約每第负負点點] 分之
    以上 以下 以内 ダース パー セット ペア ミリオン キロ メガ"""
_IRREGULAR = {"three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
_PARTS = [_IRREGULAR.get(name, re.sub("y$", "ie", name) + "th") for name in (*[*SPELLED_NUMBERS][3:], *POWERS_OF_TEN)]
_FOREIGN = forward(rf"^(?:{'|'.join(FOREIGN_STARTS.split())})|{'|'.join(FOREIGN_PARTS.split())}")
CHANGES = {*DOUBTS, *CHANGING.split(), *FOREIGN_WORDS.split(), *PERCENT, *POWERS_OF_TEN, *SPELLED_NUMBERS}
CHANGES |= {part + plural for part in _PARTS for plural in ("", "s")}  # 5 elevenths are 5/11
# Scripts whose words may name what is counted: 5个苹果, 5 яблок.
SCRIPTS = {"LATIN", "CYRILLIC", "HEBREW", "ARABIC", "DEVANAGARI", "THAI", "HANGUL", "HIRAGANA", "KATAKANA",
           "CJK"}  # fmt: skip
MODIFIERS = ("more", "positive")  # before a counted noun: 5 more apples. But 5 more, and 5 more than 3, are no 5
ARTICLES = ("a", "an", "the")
# Of the words behind a unit: `to the right` is `right`
FILLERS = {*ARTICLES, "of", "to", "in", "due", "energy", "heat", "(", ")", "_", "{", "}"}
# A direction after a unit has one of the first words, and the others only between them.
DIRECTIONS = {"up", "down", "right", "left", "east", "west", "north", "south", "horizontal", "vertical", "upward",
              "downward", "upwards", "downwards", "northeast", "northwest", "southeast", "southwest"}  # fmt: skip
IN_DIRECTIONS = {*DIRECTIONS, "to", "the", "of", "above", "below", "due"}

MAX_WORDS = 6  # of a counted noun
_SUBSTANCE = forward(r"(?:[A-Z][a-z]?[0-9]{0,2}+)++")  # the CO2 of 3 g of CO2


def noun_of(found: Sequence[Token], label: bool = False) -> str:
    """Return the words of a counted noun, or of a label, in the singular. "" if a word may change a value.

    eggs    cups of tea    Minimum value, which is only a label
    """
    words: list[str] = []
    found = found[1:-1] if [token.text for token in (*found[:1], *found[-1:])] == ["(", ")"] else found
    found = _with_substance(found)
    for before, token, after in zip([END, *found], found, [*found[1:], END], strict=False):
        word = "per" if token.text == "/" and words else token.text.casefold()
        letters = token.kind in ("run", "word") and (len(word) > 1 or word == "a" or not word.isascii())
        if token.text in MODIFIERS and not label and after.kind in ("run", "word") and after.text != "than":
            continue  # 5 more apples
        if token.text != "." or before.kind not in ("run", "word"):
            changing = word in BOUNDS or changes_value(word) or (not words and word in COUNTED_POWERS)
            if not (letters or word == "per") or (changing and not (label and word in IN_LABELS)):
                return ""
            words.append(word.removesuffix("s").removesuffix("e"))
    noun = "".join(words)
    starts = found[0].text.casefold() != "the" if found else False  # 5 of the eggs, but not 5 the second
    return noun if starts and len(words) <= MAX_WORDS and (label or "percent" not in noun) else ""  # 48% per cent


def _with_substance(found: Sequence[Token]) -> Sequence[Token]:
    """Write the CO2 of "g of CO2" as one word."""
    start = next((at for at, token in enumerate(found, 1) if token.text == "of"), len(found))
    formula = "".join(token.text for token in found[start:] if token.text not in ("_", "{", "}"))
    return [*found[:start], Token("word", formula)] if _SUBSTANCE.fullmatch(formula) else found


def changes_value(word: str) -> bool:
    """Can this word change a value? dozen, non-zero, eighteen, Millionen, 万, and every word of an unknown script."""
    known = CHANGES & {word, *word.split("-")} or word.endswith(CHANGING_ENDS) or _FOREIGN.search(word)
    return bool(known) or not (word.isascii() or {_script(letter) for letter in word} <= SCRIPTS)


def _script(letter: str) -> str:
    """LATIN, CYRILLIC, CJK, ... Signs, such as the hyphen of a word, count as LATIN."""
    return unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else "LATIN"


def words_of(found: Sequence[Token]) -> str:
    """Return the words behind a unit without those that say nothing: right for "to the right"."""
    words = [token.text.casefold() for token in found if token.text.casefold() not in FILLERS]
    return "".join(word.removesuffix("s").removesuffix("e").removesuffix("ward") for word in words)


def without_direction(found: list[Token], degrees: bool) -> tuple[list[Token], list[Token]]:
    """Cut off the direction of a quantity: m/s to the right, m/s east, ° above the horizontal."""
    start = len(found)
    while start and found[start - 1].text.casefold() in IN_DIRECTIONS:
        start -= 1
    aims = {token.text.casefold() for token in found[start:]} & DIRECTIONS
    return (found[:start], found[start:]) if (start or degrees) and aims else (found, [])
