r"""The tables of the signs, the units and the words of answers.

To add                          add
another spelling of a sign      it to SPELLINGS: \dfrac is \frac
a Unicode character             its LaTeX to CHARACTERS
a letter such as \alpha         it to GREEK. If it marks the next letter, as \vec does, add it to MARKED
a function such as \sin         its name to FUNCTIONS, and its value to _EXACT or _REAL in algebra.py
a relation such as <            it to RELATIONS
a bracket                       its pair to BRACKETS. If it has a value, as |x| has, add it to _EXACT in algebra.py
an environment of a matrix      its name to MATRICES
a unit                          its symbol and its other names, without the plural's s, to OTHER, or to SI if it takes
                                prefixes. If it is a product of other units, add it to COMPOUND
a currency                      its unit, and its symbol to CURRENCIES. If a sign writes it, add the sign to IN_UNITS
a word that changes a value     it to CHANGING, or to FOREIGN_WORDS if it is not English. No rule skips it: 5 dozen,
                                8 万, about 8. Words in no table, as 8 eggs and 8 years old have them, only name what
                                is counted
a script                        its name in Unicode to SCRIPTS, and its words that change a value to FOREIGN_PARTS.
                                Words in other scripts are unreadable
"""

# Sign -> its other spellings.
SPELLINGS = {
    r"\frac": r"\dfrac \tfrac \cfrac \nicefrac \sfrac", r"\binom": r"\dbinom \tbinom", r"\infty": r"\infinity",
    r"\le": r"\leq \leqslant <=", r"\ge": r"\geq \geqslant >=", r"\ne": r"\neq !=", "<": r"\lt", ">": r"\gt",
    r"\{": r"\lbrace", r"\}": r"\rbrace", "(": r"\langle \lparen", ")": r"\rangle \rparen", "[": r"\lbrack",
    "]": r"\rbrack", "|": r"\lvert \rvert \vert \| \lVert \rVert \Vert", "*": r"\times \cdot \ast \bullet",
    "/": r"\div \slash", "^": "**", "%": r"\%", r"\$": r"\textdollar \mathdollar \dollar", ":": r"\colon {:}",
    "=": r"\equiv \coloneqq", r"\approx": r"\simeq \approxeq \thickapprox", r"\ldots": r"\dots ...",
    "'": r"\prime", "or": r"\lor \vee", "and": r"\land \wedge", r"\cup": r"\bigcup",
    r"\setminus": r"\smallsetminus \backslash", r"\emptyset": r"\varnothing", r"\overline": r"\bar",
    r"\mathbbR": r"\R", r"\epsilon": r"\varepsilon", r"\phi": r"\varphi", r"\theta": r"\vartheta", r"\rho": r"\varrho",
    "Å": r"\AA \angstrom", r"\angle": r"\measuredangle", r"\to": r"\rightarrow \longrightarrow ->",
    r"\\": r"\cr", "√": r"\surd", "£": r"\pounds \textsterling", "€": r"\euro \texteuro",
}  # fmt: skip

# Characters -> the LaTeX for each of them.
CHARACTERS = {
    "−–‐‑": "-", "×": r"\times ", "÷∕⁄": "/", "∶": ":", "·⋅•∙": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "±": r"\pm ",
    "∪": r"\cup ", "∈": r"\in ", "µ": "μ", "′’": "'", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∅": r"\emptyset ",
    "≈≃": r"\approx ", "≡": r"\equiv ", "→": r"\to ", "∀": r"\forall ", "…": r"\ldots ", "⟨〈": r"\langle ",
    "⟩〉": r"\rangle ", "ℝ": r"\R ", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "“”": '"', "、": ",", "。": ".", "º": "°", "℃": "°C", "\u2126": "Ω", "\u212b": "Å", "\u212a": "K",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "εϵ": r"\epsilon ", "ζ": r"\zeta ",
    "η": r"\eta ", "θϑ": r"\theta ", "ι": r"\iota ", "κ": r"\kappa ", "λ": r"\lambda ", "ν": r"\nu ", "ξ": r"\xi ",
    "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φϕ": r"\phi ", "χ": r"\chi ", "ψ": r"\psi ", "ω": r"\omega ",
    "Γ": r"\Gamma ", "Δ∆": r"\Delta ", "Θ": r"\Theta ", "Λ": r"\Lambda ", "Ξ": r"\Xi ", "Σ": r"\Sigma ",
    "Φ": r"\Phi ", "Ψ": r"\Psi ", "î": r"\hat{i}", "ĵ": r"\hat{j}", "ħ": r"\hbar ", "ℓ": r"\ell ",
    "\u00a0\u2009\u202f\u3000": " ", "\u200b\u2060\ufeff": "",
}  # fmt: skip

# Relation -> the same relation read from the right, "" if it cannot be turned: A \in B is not B \in A.
RELATIONS = {"=": "=", r"\approx": "", r"\ne": r"\ne", r"\in": "", "<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
INEQUALITIES = ("<", ">", r"\le", r"\ge")
# Opening bracket -> its closing brackets and its function. The first closing bracket belongs to it: (5). The others may
# only close an interval: (0,5]. The function is a name of algebra.py, as |x| is abs(x), or "" for brackets that group.
BRACKETS = {
    "(": ((")", "]"), ""), "[": (("]", ")"), ""), "{": (("}",), ""), "|": (("|",), "abs"),
    r"\lfloor": ((r"\rfloor",), "floor"), r"\lceil": ((r"\rceil",), "ceil"),
}  # fmt: skip
MATRICES = ("pmatrix", "bmatrix", "matrix", "smallmatrix", "array", "vmatrix")

TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan")
FUNCTIONS = (*TRIGONOMETRIC, "sinh", "cosh", "tanh", "ln", "log", "lg", "exp")
# These are commands without their backslash too: sin x, sqrt(2), 2pi. "sec" is missing, since it is also a second.
COMMANDS = {*FUNCTIONS, "pi", "sqrt", "frac", "infty", "infinity", "theta"} - {"sec"}

GREEK = r"""\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi
    \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Phi \Psi \Omega \hbar \ell"""
OPERATORS = (r"\gcd", r"\lcm", r"\max", r"\min", r"\det", r"\dim", r"\Pr")  # only as a name: \gcd(12,18) = 6
LETTERS = (*GREEK.split(), *OPERATORS, r"\pi", r"\infty", r"\mathbbZ", r"\mathbbN", r"\mathbbQ", r"\mathbbC")
# A letter with a mark is one letter: \vec{a}, \angle ABC.
MARKED = (r"\overline", r"\angle", r"\triangle", r"\vec", r"\hat", r"\widehat", r"\overrightarrow", r"\tilde", r"\dot",
          r"\ddot")  # fmt: skip

PREFIXES = {"": "", "f": "femto", "p": "pico", "n": "nano", "μ": "micro", "m": "milli", "c": "centi", "d": "deci",
            "h": "hecto", "k": "kilo", "M": "mega", "G": "giga", "T": "tera"}  # fmt: skip
# Symbol -> its other names. A symbol is case-sensitive (mW, MW), a longer name is not.
SI = {
    "m": "meter metre", "g": "gram gramme gm", "s": "second sec", "A": "ampere amp", "K": "kelvin", "mol": "mole",
    "cd": "candela", "N": "newton", "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hertz", "C": "coulomb",
    "V": "volt", "Ω": "ohm", "F": "farad", "T": "tesla", "Wb": "weber", "H": "henry", "S": "siemens", "Bq": "becquerel",
    "Gy": "gray", "Sv": "sievert", "lm": "lumen", "lx": "lux", "L": "l liter litre",
    "eV": "electronvolt electron-volt", "cal": "calorie", "bar": "", "B": "byte", "bit": "",
}  # fmt: skip
OTHER = {
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "acre": "", "ha": "hectare", "lb": "pound",
    "oz": "ounce", "ton": "", "t": "tonne", "gal": "gallon", "qt": "quart", "pt": "pint", "cup": "", "tsp": "teaspoon",
    "tbsp": "tablespoon", "min": "minute 分钟 分鐘 минут минуты", "h": "hr hour 小时 小時 時間 시간 час часа часов",
    "day": "d 天 дней", "week": "wk", "month": "mo", "year": "yr", "°": "degree deg", "celsius": "", "fahrenheit": "",
    "rad": "radian", "sr": "steradian",
    "rev": "revolution", "kΩ": "kilohm", "MΩ": "megohm", "atm": "atmosphere", "mmHg": "", "torr": "", "ly": "",
    "Å": "angstrom", "u": "amu", "D": "debye", "dB": "decibel", "G": "gauss", "ppm": "", "ppb": "", "knot": "kn",
    "unit": "", "dollar": r"USD \$", "cent": "¢", "euro": "EUR €", "GBP": "£", "yuan": "元 块 块钱 人民币 RMB CNY",
    "yen": "¥ 円 JPY", "rupee": "₹ INR", "ruble": "₽ RUB руб рублей рубля", "won": "₩ 원 KRW", "km": "公里 км",
    "hp": "horsepower HP Hp", "μm": "micron",
}  # fmt: skip
# Names of a product of other units.
COMPOUND = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "kWh": "kW h", "Wh": "W h", "rpm": "rev/min",
            "psi": "lb/in^2", "cc": "cm^3", "molar": "mol/L", "Nm": "N m", "kNm": "kN m", "Ns": "N s"}  # fmt: skip
COMPOUND |= {prefix + "M": f"{prefix}mol/L" for prefix in ("", "m", "μ", "n")}  # 0.1 M

# Names of two tokens.
SCALES_OF_HEAT = {"c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit"}  # after °
JOINED = {"mm Hg": "mmHg", "light years": "ly", "light year": "ly", "US dollars": "dollar", "US dollar": "dollar",
          "electron volts": "eV", "electron volt": "eV"}  # fmt: skip

CURRENCIES = {"dollar", "cent", "euro", "GBP", "yuan", "yen", "rupee", "ruble", "won"}
NO_POWERS = {*CURRENCIES, "acre", "ha", "lb", "oz", "ton", "gal", "qt", "pt", "cup", "tsp", "tbsp", "knot", "dB", "hp",
             "ppm", "ppb"}  # fmt: skip
# Signs that may stand in a unit.
IN_UNITS = {"/", "*", "^", "_", "°", "-", ".", "(", ")", "{", "}", r"\frac", r"\mu", r"\Omega", "Å", r"\$", "€", "£",
             "¥", "¢", "₹", "₽", "₩"}  # fmt: skip
# A unit -> the smaller unit that may follow it: 3 hours and 5 minutes.
SMALLER = {"year": "month", "week": "day", "day": "h", "h": "min", "min": "s", "ft": "in", "lb": "oz", "m": "cm",
           "km": "m", "kg": "g", "dollar": "cent", "°": "min"}  # fmt: skip

PERCENT = ("%", "percent", "pct", "percentage")
NUMBER_WORDS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}  # 5 million is 5 times 10^6
SPELLED_NUMBERS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
                   "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
                   "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30,
                   "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}  # fmt: skip
SPELLED_NUMBERS |= {tens + mark + one: SPELLED_NUMBERS[tens] + SPELLED_NUMBERS[one] for mark in ("", "-")
                    for tens in [*SPELLED_NUMBERS][-8:] for one in [*SPELLED_NUMBERS][1:10]}  # fmt: skip
ORDINALS = ("th", "st", "nd", "rd")
ARTICLES = ("a", "an", "the")
# Of the words behind a unit: `to the right` is `right`
FILLERS = {*ARTICLES, "of", "to", "in", "due", "energy", "heat", "(", ")", "_", "{", "}"}
APPROX = r"\approx"
APPROXIMATELY = (APPROX, "approximately", "approx", "about")
MODIFIERS = ("more", "positive")  # before a counted noun: 5 more apples. But 5 more, and 5 more than 3, are no 5
SETS = (r"\mathbbZ", r"\mathbbN", r"\mathbbQ", r"\mathbbR", r"\mathbbC")

# Words that doubt an answer, and words that change a value or give a second one. A counted noun has none of them.
DOUBTS = {"maybe", "perhaps", "possibly", "probably", "wait", "otherwise", "instead", "wrong", "false", "incorrect",
          "guess", "either", "neither", "nor"}  # fmt: skip
CHANGING = """
    lakhs crores sixths seventh sevenths eighths ninth ninths itself negated reversed quadruple quadrupled est etc
    others onward onwards undefined nan nope infinite null not non no never about approximately approx around
    nearly almost roughly circa both all any but then versus vs is are was be equal equals if unless when where
    whereas while because since so for only plus minus negative positive more less least most greater fewer than
    over under above below between from to through except excluding without hundreds thousands millions dozen
    dozens score pair pairs couple half halves third thirds fourth fourths fifth fifths sixth eighth tenth tenths
    hundredth hundredths thousandth thousandths quarter quarters ones tens twice thrice double triple squared cubed
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
# Scripts whose words may name what is counted: 5个苹果, 5 яблок.
SCRIPTS = {"LATIN", "CYRILLIC", "HEBREW", "ARABIC", "DEVANAGARI", "THAI", "HANGUL", "HIRAGANA", "KATAKANA",
           "CJK"}  # fmt: skip
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
# A direction after a unit has one of the first words, and the others of AIMING between them.
AIMS = {"up", "down", "right", "left", "east", "west", "north", "south", "horizontal", "vertical", "upward", "downward",
         "upwards", "downwards", "northeast", "northwest", "southeast", "southwest"}  # fmt: skip
AIMING = {*AIMS, "to", "the", "of", "above", "below", "due"}
FOREIGN = rf"^(?:{'|'.join(FOREIGN_STARTS.split())})|{'|'.join(FOREIGN_PARTS.split())}"
CHANGES = {*DOUBTS, *CHANGING.split(), *FOREIGN_WORDS.split(), *PERCENT, *NUMBER_WORDS, *SPELLED_NUMBERS}
