r"""The signs of math answers: the tables for lexer.py and for the rules of the grammar.

To add                         add
another spelling of a sign     it to SPELLINGS: \dfrac is \frac
a Unicode character            its LaTeX to CHARACTERS
a letter such as \alpha        it to GREEK. If it marks the next letter, as \vec does, add it to MARKED
a function such as \sin        its name to FUNCTIONS, and its value to _EXACT or _REAL in algebra.py
a relation such as <           it to RELATIONS
a bracket                      its pair to BRACKETS. If it has a value, as |x| has, add it to _EXACT in algebra.py
an environment of a matrix     its name to MATRICES

Units are in units.py. Words that change a value, as dozen does, are in vocabulary.py.
"""

# ------------------------------------------------------------------------------------ spellings, for the lexer

# Sign -> its other spellings.
SPELLINGS = {
    r"\frac": r"\dfrac \tfrac \cfrac \nicefrac \sfrac", r"\binom": r"\dbinom \tbinom", r"\infty": r"\infinity",
    r"\le": r"\leq \leqslant <=", r"\ge": r"\geq \geqslant >=", r"\ne": r"\neq !=", "<": r"\lt", ">": r"\gt",
    r"\{": r"\lbrace", r"\}": r"\rbrace", "(": r"\langle \lparen", ")": r"\rangle \rparen", "[": r"\lbrack",
    "]": r"\rbrack", "|": r"\lvert \rvert \vert \| \lVert \rVert \Vert", "*": r"\times \cdot \ast \bullet",
    "/": r"\div \slash", "^": "**", "%": r"\%", r"\$": r"\textdollar \mathdollar \dollar", ":": r"\colon {:}",
    "'": r"\prime", "or": r"\lor \vee", "and": r"\land \wedge", r"\cup": r"\bigcup",
    r"\setminus": r"\smallsetminus \backslash",
    r"\emptyset": r"\varnothing", r"\overline": r"\bar", r"\mathbbR": r"\R", r"\epsilon": r"\varepsilon",
    r"\phi": r"\varphi", r"\theta": r"\vartheta", r"\rho": r"\varrho", "Å": r"\AA \angstrom",
    r"\angle": r"\measuredangle", r"\to": r"\rightarrow \longrightarrow ->", r"\\": r"\cr", "√": r"\surd",
    "£": r"\pounds \textsterling", "€": r"\euro \texteuro",
}  # fmt: skip

# Characters -> the LaTeX for each of them.
CHARACTERS = {
    "−–‐‑": "-", "×": r"\times ", "÷∕⁄": "/", "∶": ":", "·⋅•∙": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "±": r"\pm ",
    "∪": r"\cup ", "∈": r"\in ", "µ": "μ", "′’": "'", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∅": r"\emptyset ",
    "≈": r"\approx ", "→": r"\to ", "θ": r"\theta ", "λ": r"\lambda ", "Δ": r"\Delta ", "ℝ": r"\R ",
    "“”": '"', "、": ",", "。": ".", "º": "°", "℃": "°C", "Ω": "Ω",
    "\u00a0\u2009\u202f\u3000": " ", "\u200b\u2060\ufeff": "",
}  # fmt: skip

# ------------------------------------------------------------------------------------ the signs of the grammar

# Relation -> the same relation read from the right, "" if it cannot be turned: A \in B is not B \in A.
RELATIONS = {"=": "=", r"\ne": r"\ne", r"\in": "", "<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
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
