r"""Right answers in the forms that models write, and wrong ones: the names of units, and tables written by hand."""

from judging import pairs

# The same text inside of what only changes its look or gives it a name.
LOOKS = [
    "{}", " {} ", "{}.", "${}$", r"\({}\)", r"\displaystyle {}", r"\ {}\ ", r"\mathbf{{{}}}", r"{{{}}}",
    r"\boldsymbol{{{}}}", r"\boxed{{{}}}", r"\textcolor{{blue}}{{{}}}", r"{{\color{{red}} {}}}", r"\large {}", r"\,{}\,",
    "\n{}\n", r"$${}$$", r"\quad {}", r"\underline{{{}}}", r"\bf {}",
]  # fmt: skip
# One unit under several names. The first is the gold's.
UNITS = [
    [r"\text{ inches}", r"\text{ in}", r"\text{ inch}", r"\text{ in.}", " inches", r"\mathrm{~in}", r"\,\text{in}"],
    [r"\text{ feet}", r"\text{ ft}", r"\text{ foot}", " ft", " feet", r"\,\mathrm{ft}"],
    [r"\text{ cm}^2", r"\text{ square centimeters}", r"\text{ sq cm}", r"\text{ cm}^{2}", " cm^2", r"\ \mathrm{cm}^2",
     r"\text{ cm²}", r"\text{ square cm}"],
    [r"\mbox{ inches}^2", r"\text{ in}^2", r"\text{ square inches}", r"\text{ sq. in.}", " square inches"],
    [r"\text{ square units}", r"\text{ units}^2", r"\text{ sq units}", " square units"],
    [r"\text{ hours}", r"\text{ hr}", r"\text{ h}", r"\text{ hrs}", " hours"],
    [r"\text{ minutes}", r"\text{ min}", r"\text{ mins}", " minutes"],
    [r"\text{ mph}", r"\text{ miles per hour}", r"\text{ mi/h}", " mph", r"\text{ miles/hour}", r"\ \text{mi/hr}"],
    [r"\text{ km/h}", r"\text{ km per hour}", r"\frac{\text{km}}{\text{h}}", r"\text{ kilometers per hour}", " km/h",
     r"\text{ kph}"],
    [r"\text{ meters}", r"\text{ m}", r"\,\mathrm{m}", r"\text{ metres}", " meters"],
    [r"\text{ pounds}", r"\text{ lb}", r"\text{ lbs}", " pounds"],
    [r"\text{ dollars}", r"\text{ USD}", " dollars", r"\text{ dollar}"],
    [r"^\circ", r"^{\circ}", "°", r"\text{ degrees}", r"\degree", " degrees", r"^\circ "],
    [r"\text{ m/s}", r"\text{ meters per second}", r"\frac{\text{m}}{\text{s}}", " m/s", r"\mathrm{~m/s}"],
    [r"\text{ cubic feet}", r"\text{ ft}^3", r"\text{ cu ft}", r"\text{ feet}^3", " cubic feet"],
    [r"\text{ grams}", r"\text{ g}", r"\,\mathrm{g}", " grams"],
    [r"\text{ liters}", r"\text{ L}", r"\text{ litres}", " liters"],
]  # fmt: skip
SCIENCE_UNITS = [
    ["m/s^2", r"\text{ m/s}^2", r"\frac{m}{s^2}", r"\text{ m s}^{-2}", r"\,\mathrm{m\,s^{-2}}", "m s^-2", "m/s²",
     r"\frac{\text{m}}{\text{s}^2}", "meters per second squared", r"\mathrm{m}/\mathrm{s}^2", "m·s⁻²",
     r"\text{m}\cdot\text{s}^{-2}", "m/s/s", "m/s**2"],
    ["ohms", r"\Omega", "Ω", r"\text{ ohm}", r"\text{ }\Omega", r"\,\Omega", r"\text{Ω}", r"\mathrm{\Omega}"],
    ["V", "volts", r"\text{ V}", r"\mathrm{V}", "volt", r"\,\text{volts}"],
    ["kg", "kilograms", r"\text{ kg}", r"\mathrm{~kg}", "kilogram"],
    ["J/(mol K)", r"\text{ J mol}^{-1}\text{ K}^{-1}", r"\frac{J}{mol \cdot K}", "J/mol/K", "J mol^{-1} K^{-1}",
     r"\mathrm{J\cdot mol^{-1}\cdot K^{-1}}", "J/(mol·K)", r"\text{ J/(mol}\cdot\text{K)}"],
    ["kJ/mol", r"\text{ kJ/mol}", r"\text{ kJ mol}^{-1}", "kJ mol⁻¹", "kilojoules per mole", r"\frac{\text{kJ}}{\text{mol}}"],
    ["mol/L", "M", r"\text{ M}", r"\text{ mol L}^{-1}", "mol·L⁻¹", r"\,\mathrm{mol/L}", "moles per liter"],
    ["nm", r"\text{ nm}", "nanometers", r"\mathrm{nm}", "nanometres"],
    [r"\mu\text{m}", "μm", "µm", r"\mu m", "micrometers", r"\,\mu\mathrm{m}", "um", r"\text{ μm}"],
    ["N", r"\text{ N}", "newtons", r"\,\mathrm{N}", "Newtons"],
    ["N/C", r"\text{ N/C}", r"\frac{N}{C}", "N C^{-1}", "newtons per coulomb", r"\mathrm{N\,C^{-1}}"],
    ["°C", r"^\circ C", r"^\circ\text{C}", "degrees Celsius", r"\,^{\circ}\mathrm{C}", "celsius"],
    ["g/cm^3", r"\text{ g/cm}^3", "g cm^{-3}", r"\frac{g}{cm^3}", "g/cm³", "grams per cubic centimeter"],
    ["MeV", r"\text{ MeV}", r"\,\mathrm{MeV}"],
    ["Hz", r"\text{ Hz}", "hertz", r"\mathrm{Hz}"],
    ["W/m^2", r"\text{ W/m}^2", "W m^{-2}", r"\frac{W}{m^2}", r"\mathrm{W\,m^{-2}}", "W·m⁻²", "watts per square meter"],
    ["kg m/s", r"\text{ kg}\cdot\text{m/s}", "kg·m/s", r"\mathrm{kg\cdot m\cdot s^{-1}}", r"\frac{kg\cdot m}{s}"],
    ["T", r"\text{ T}", "tesla", r"\mathrm{T}"], ["A", r"\text{ A}", "amperes", "amps", r"\,\mathrm{A}"],
    ["s", r"\text{ s}", "seconds", r"\text{ sec}", r"\mathrm{s}"], ["K", r"\text{ K}", "kelvin", r"\mathrm{K}"],
    ["atm", r"\text{ atm}", "atmospheres"], ["mL", r"\text{ mL}", "ml", "milliliters", r"\mathrm{mL}"],
    ["eV", r"\text{ eV}", r"\mathrm{eV}"], ["k\\Omega", "kΩ", r"\text{ k}\Omega", "kilohms"],
    ["rad/s", r"\text{ rad/s}", "rad s^{-1}", "radians per second", r"\frac{rad}{s}"],
]  # fmt: skip
RIGHT_MATH = pairs(r"""
[0,1)\cup(1,\infty)  |  [0,\infty)\setminus\{1\}  ;  f(x)=2x  |  f(x)=2x, x \in \mathbb{R}  ;  (-\infty,-2)\cup(2,\infty)  |  |x|>2  |  2<|x|
12  |  \text{Total cost} = 12  |  12 = n  |  S_{10} = 12  |  m+n = 12  |  a_5=12  |  \mathdollar 12  |  12\text{ (eggs)}  |  19 - 7 = 12  |  11 + 1
\frac{3}{4}  |  \frac{\text{3}}{\text{4}}  |  \cfrac{3}{4}  |  {3}/{4}  |  3 \div 4  ;  \binom{9}{3}  |  {9 \choose 3}  ;  1031_5  |  1031 \text{ (base 5)}
2\sqrt{3}  |  2(3)^{1/2}  |  2√3  |  2 sqrt(3)  |  \sqrt{12}  ;  \frac{2\sqrt{3}}{5}  |  (2√3)/5  ;  3\pi  |  3pi  ;  2^{7}  |  128  ;  \ln 7  |  \log_e 7  ;  e^{7}  |  \exp(7)
(2,-3)  |  （2,-3）  |  \langle 2,-3 \rangle  ;  x^2+3x-1  |  f(x) = -1+x**2+3x  ;  3-2i  |  -2\mathrm{i}+3  |  3-i\cdot 2  ;  y=2x+1  |  2x - y +1 = 0  |  2x+1=y
3.5 \times 10^{-3}  |  3.5 × 10⁻³  |  3.5*10**-3  ;  x < 3 \text{ or } x > 5  |  (-\infty,3) ∪ (5,+\infty)  ;  3:20 PM  |  3{:}20 pm  ;  3:5  |  \text{boys : girls} = 3:5
\binom{n}{k+2}  |  \frac{n!}{(k+2)!(n-k-2)!}  ;  \binom{n-1}{k+1}  |  \frac{(n-1)!}{(k+1)!(n-k-2)!}
\binom{n-2}{k}  |  \frac{(n-2)!}{k!(n-k-2)!}  ;  \binom{n-3}{r}  |  \frac{(n-3)!}{r!(n-r-3)!}
n/2  |  \frac{(n/2)!}{(n/2-1)!}  ;  n(n-1)(n-2)(n-3)(n-4)  |  \frac{n!}{(n-5)!}
2\sqrt3  |  2\sqrt{3} \approx 3.46  |  x = 2\sqrt3\ (\approx 3.464)  |  2\sqrt3 \text{ or approximately } 3.46  ;  3.46  |  x \approx 3.46  |  \approx 3.46
2\sqrt3 \approx 3.46  |  2\sqrt3  |  3.46  ;  \frac12  |  \frac12 \text{ or } 0.5  |  0.5 \text{ or } 50\%
f(x)=2x  |  f(x) \equiv 2x  |  y=2x  |  f(x)=2x, \forall x \in \mathbb{R}  ;  2x  |  \frac{dy}{dx}=2x
\text{no solution}  |  \text{No solutions}  |  \emptyset  ;  \mathbb{R}  |  \text{all real numbers}  ;  x \ne 2  |  x\not=2
5  |  5 \text{ more apples}  |  5 \text{ positive integers}  ;  3 \text{ g}  |  3 \text{ g of CO2}  |  3 \text{ g CO}_2  ;  55  |  \text{Power} = 55
\begin{pmatrix} 1/2 \\ 1 \end{pmatrix}  |  \frac12\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  -\begin{pmatrix} -1/2 \\ -1 \end{pmatrix}
k\pi, k \in \mathbb{Z}  |  n\pi \ (n \in \mathbb{Z})  |  x = m\pi \text{ where } m \text{ is an integer}  |  \{k\pi : k \in \mathbb{Z}\}  ;  2k\pi  |  2k\pi, k \in \mathbb{Z}
(-2,2)  |  |x|<2  ;  2\omega\mu  |  2ωμ  ;  \langle 1,2 \rangle  |  ⟨1,2⟩  ;  3\mathbf{i}-\mathbf{j}  |  3\hat{i}-\hat{j}  |  3\hat{\imath}-\hat{\jmath}
3:00 \text{ PM}  |  3 \text{ p.m.}  |  3:00pm  |  3 \text{ pm}  ;  3 \text{ hours } 5 \text{ minutes}  |  3 \text{ hours and } 5 \text{ minutes}  |  3 hours, 5 minutes
\frac13  |  0.333\ldots  |  .\overline{3}  ;  \frac{4}{33}  |  0.1212…  ;  21  |  C(7,2)  |  \text{twenty-one}  ;  11  |  \text{eleven}
5  |  5个苹果  |  5元  |  5 руб.  |  5 км  |  5 ชั่วโมง  |  5 ₽  ;  5元  |  5
2t^4+7t+11  |  \mathrm{11 +2 t^4 +7 t}  |  \mathrm{y = 2t^{4}+11+7t}  ;  5\text{ m}, 6\text{ m}  |  5\text{ m}, 6\text{ m}
1A3_{16}  |  (1A3)_{16}  |  1A3_{\text{sixteen}}  |  (1A3)_{\text{sixteen}}  |  1A3_{(16)}
Tom  |  tom  |  Tom  |  \text{Tom}  ;  red  |  Red  |  RED  ;  xy  |  yx  |  x \cdot y  ;  ab  |  ba  ;  abc  |  cab  ;  ABC  |  ABC
(3,7)  |  y=7, x=3  |  (y,x)=(7,3)  |  (a,b)=(3,7)  |  a=3,b=7  |  b=7,a=3  |  \begin{cases}x=3\\y=7\end{cases}  |  x=3 \text{ and } y=7
(x,y)=(3,7)  |  (y,x)=(7,3)  |  y=7,x=3
(-2,3)  |  x>-2\text{ and }x<3  |  -2<x\land x<3  |  x<3 \text{ and } x>-2
12  |  12^{\text{th}}  |  \text{twelve}  |  \pounds12  |  \euro12  |  \text{The answer is }12  |  \text{Tom has 12 apples}  |  \text{Minimum value is }12  |  \text{Remainder}=12  |  \text{GCD}(24,36)=12
12  |  f^{-1}(3)=12  |  f'(2)=12  |  f''(0)=12  |  f_2(1)=12  |  f^{(3)}(0)=12  |  (f\circ g)(2)=12  |  |x-y|=12  |  m-n=12  |  P(A\cap B)=12  |  \lim_{x\to2}f(x)=12  |  \sum_{k=1}^n a_k=12  |  \int_0^1 f(x)\,dx=12
28\%  |  \text{Percentage}=28\%
7  |  \text{seven}  |  seven
\sin 40^\circ  |  \sin(40^\circ)  |  \sin{40^\circ}  |  \sin\left(40^\circ\right)  ;  \frac{\sqrt3}{2}  |  \sin(60^\circ)
(1,2),(3,-4)  |  x=1,y=2 \text{ or } x=3,y=-4  |  x=3,y=-4 \text{ or } y=2,x=1
\frac{x^2}{2}+C  |  \frac{x^2}{2}+c  |  \frac{x^2}{2}+K
\begin{pmatrix}3\\-7\end{pmatrix}  |  (3,-7)^T  |  \begin{pmatrix}3\cr-7\end{pmatrix}
70,000  |  70{\,}000  |  70\text{,}000  |  US\$70,000  ;  0.5  |  0{.}5  |  \nicefrac12  |  \sfrac12  |  1⁄2  ;  \frac13  |  0.\dot3  |  0.\dot{3}
72^\circ  |  72\textdegree  ;  Evelyn  |  \text{"Evelyn"}  |  “Evelyn”  ;  2\sqrt2  |  2\surd2  ;  \sqrt[3]{4}  |  \root 3\of 4
a_nb  |  a_n b  |  ba_n  ;  v_{max}  |  v_max
3:4  |  3∶4  ;  \frac{1}{2}  |  1⁄2  |  \nicefrac{1}{2}  |  \sfrac{1}{2}
72^\circ  |  72\textdegree  |  \measuredangle A = 72^\circ
4  |  f^{-1}(5)=4  |  f'(2)=4  |  f''(0) = 4  |  \varphi(n) = 4  |  v(2) = 4  |  \pounds 4  |  \euro 4
\frac{x-3}{2}  |  f^{-1}(x)=\frac{x-3}{2}  |  f'(x)=\frac{x-3}{2}  ;  10\text{ cents}  |  10¢  |  10\text{¢}
2x  |  2x \text{ for all real } x  |  2x \text{ for all positive integers } x  |  2x \text{ for every } x
x \neq 2  |  (-\infty,2)\cup(2,\infty)  |  \mathbb{R}\setminus\{2\}  |  2 \ne x  |  \{x \mid x \ne 2\}
5 \text{ hp}  |  5\text{ HP}  |  5 \text{ horsepower}  ;  5 \text{ kg}  |  5\text{ Kg}  |  5 \text{ KG}
\frac{1}{3}  |  0.3\text{ repeating}  |  0.\overline{3}  ;  \frac{1}{6}  |  0.1\overline{6}
\frac{3}{4}  |  0.75  |  .75  |  \frac{3}{4}\text{ cup}  |  \frac34\text{ of a mile}  |  \dfrac{3}{4}\, \text{cups}
12  |  12\text{ cm}^{2}.  |  \left(12\right)  |  12 \text{ sq. units}  |  \text{Answer} = 12  |  \text{The answer: } 12  |  12 \text{ per day}  |  12\text{ gallons of water}  |  12\,\text{m}^3
12  |  12 hours  |  x \, = \, 12  |  n=12 \text{ students}  |  12 \text{ days}  |  12\text{ nickels}  |  \text{12}  |  \mathtt{12}  |  \textit{12}
12  |  \bm{12}  |  \mathrm{12\,cm}  |  \mathrm{12cm}  |  12 \mathrm{cm}  |  12 \text{ \(cm\)}  |  {12}\text{ cm}  |  \$12/\text{hour}  |  \$ 12 \text{ each}
(-\infty,3)  |  x<3  |  (-∞,3)  |  \left(-\infty,3\right)  |  x \in (-\infty, 3)  |  3 > x  |  \{x \mid x < 3\}  |  \{x: x<3\}  |  (-\infty, 3.0)
\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  \begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}  |  \begin{bmatrix}1\\2\end{bmatrix}  |  \left[\begin{array}{r}1\\2\end{array}\right]  |  \left( \begin{matrix} 1 \\ 2 \end{matrix} \right)  |  \langle 1, 2\rangle
\frac{\pi}{6}  |  30^\circ  |  \pi/6  |  \theta = \frac{\pi}{6}  |  \frac{\pi}{6} \text{ radians}  |  \frac{\pi}{6}\text{ rad}
\text{(C)}  |  \mathbf{C}  |  (\text{C})  |  (\mathbf{C})  |  \boxed{\text{C}}  |  \text{Choice C}  |  \text{option C}
3\frac{1}{2}  |  3.5  |  \frac{7}{2}  |  7/2  |  3 \frac12  |  3\tfrac{1}{2}  |  3 1/2  |  3 + \frac{1}{2}
3:00  |  3:00 \text{ PM}  |  \text{3:00}  |  3{:}00
4:3  |  4 : 3  |  4 \text{ to } 3
-2,3  |  x \in \{-2, 3\}  |  x=-2,\; 3  |  \boxed{-2}, \boxed{3}  |  -2 and 3  |  -2\text{ or }3
\log_2 3  |  \frac{\ln 3}{\ln 2}  |  \log_{2}(3)  |  \frac{\log 3}{\log 2}  |  \frac{1}{\log_3 2}
x^2+y^2=25  |  y^2 + x^2 = 25  |  x^2+y^2-25=0  |  25=x^2+y^2
6  |  3!  |  |{-6}|  |  \lfloor 6.5 \rfloor  |  ⌊6.5⌋  |  ⌈5.5⌉  |  2 \times 3 = 6  |  |-6|  |  \sqrt{36}  |  6.0  |  6.00
(2,3)  |  x=2, y=3  |  (x,y)=(2,3)  |  \left(2,3\right)  |  \{(2,3)\}  |  x=2 \text{ and } y=3  |  (2;3)  |  2, 3  |  A(2,3)
\frac{a}{b}  |  a/b  |  a \div b
[2,5)  |  2\le x<5  |  [2, 5)  |  x\in[2,5)  |  2\leqslant x < 5
10  |  \$10  |  \$10.00  |  \mathbf{\$10}  |  10\text{ USD}  |  \text{\$}10.00  |  \textdollar10  |  10\,\$  |  \text{10 dollars}
48  |  48 \text{ slices}  |  8+40=48  |  48.  |  x=48  |  48\text{ pieces of pizza}
16  |  16 \text{ lbs}  |  16 \text{ pounds}  |  16 lbs  |  16\text{ lb.}
990  |  \$990  |  \$ 990  |  990 \text{ dollars per month}  |  \$990\text{ per month}  |  \$990/month  |  \$990 \text{ a month}
27  |  27 \text{ apples left}  |  27 \text{ remaining apples}  |  27 \text{ apples remaining}
5  |  5 \text{ days}  |  5 \text{ times}  |  \text{5 times}  |  5\text{ zeros}
18  |  \boxed{18}  |  \boxed{\$18}  |  \text{Total: } 18  |  \text{Total: } \$18  |  Total: 18  |  \textbf{Total: }18  |  \text{Cost: \$18}  |  \text{Cost} = \$18
\frac{1}{4}  |  1/4  |  0.25  |  25\%  |  \frac{1}{4}\text{ of the cake}  |  \text{1/4}  |  {1 \over 4}  |  \frac{25}{100}  |  1 / 4
1/2  |  \frac{1}{2}  |  \text{½}  |  ½  |  .5
2,3,5  |  2, 3, 5  |  \{2,3,5\}  |  2, 3 \text{ and } 5  |  5,3,2  |  (2,3,5)  |  [2,3,5]  |  2 \text{, } 3 \text{, } 5  |  \text{2, 3, and 5}
x \in [-2,7]  |  [-2,7]  |  -2 \leq x \leq 7  |  [-2, 7]
2516_8  |  2516_{8}  |  (2516)_8  |  2516 \text{ in base } 8
\text{infinitely many}  |  \text{Infinitely many}  |  infinitely many
(3, \frac{\pi}{2})  |  (3, \pi/2)  |  \left( 3, \frac{\pi}{2} \right)  |  (3,90^\circ)  |  r=3, \theta=\frac{\pi}{2}
\cot x  |  \frac{\cos x}{\sin x}  |  \frac{1}{\tan x}  |  \cot(x)  |  \cot{x}
120^\circ  |  120  |  120°  |  120^{\circ}  |  120\degree  |  120\text{°}  |  \angle A = 120^\circ  |  120 \text{ deg}
e^{-2}  |  \frac{1}{e^2}  |  \exp(-2)
50  |  50 \text{ km/h}  |  50 km/h  |  50\text{ kph}  |  50 \frac{\text{km}}{\text{h}}  |  50\text{ miles}/\text{hour}  |  50\ \mathrm{mi}
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}  |  \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}  |  \left[\begin{array}{cc} 1 & 0 \\ 0 & 1 \end{array}\right]  |  \begin{pmatrix}1&0\\0&1\end{pmatrix}  |  \left(\begin{smallmatrix}1&0\\0&1\end{smallmatrix}\right)  |  \begin{pmatrix} 1 & 0 \\[4pt] 0 & 1 \end{pmatrix}
57  |  57\\  |  \[57\]  |  \(57\)  |  57\;  |  \text{$57}  |  57 \hspace{1mm} \text{cm}  |  \boldsymbol{57}
57  |  ５７  |  \text{57}  |  \mbox{57}  |  \rm{57}  |  {\bf 57}  |  \mathsf{57}  |  {\large 57}  |  \colorbox{yellow}{57}
57  |  \text{\textbf{57}}  |  57\text{ in total}  |  57 total  |  \underline{\underline{57}}  |  \fbox{57}  |  \boxed{\boxed{57}}  |  57~\text{cm}  |  +57
57  |  57\phantom{0}  |  57 \quad
|x-3|  |  |3-x|  |  \left|x-3\right|  |  \lvert x-3 \rvert
15\text{ mph}  |  15 mph  |  15 miles per hour  |  15 \text{ mi/hr}  |  15 \text{ mi/h}  |  15\text{ miles}/\text{hour}  |  15\text{ miles an hour}
9\text{ sq ft}  |  9 \text{ ft}^2  |  9 square feet  |  9 \text{ square foot}  |  9 ft^2  |  9 sq. ft.  |  9 \text{ sq. feet}
\$1{,}200  |  1200  |  \$1200  |  1,200 dollars  |  \$1,200.00  |  1.2 \text{ thousand dollars}
\arcsin{10 \theta}  |  \sin^{-1}(10\theta)  ;  \frac12 \ln 2  |  \ln\sqrt{2}  |  \frac{\ln 2}{2}  |  \frac{\ln(2)}{2}
(x+2)(x-3)  |  x^2-x-6  |  (x - 3)(x + 2)  ;  \cos 2x  |  1-2\sin^2 x  |  2\cos^2(x)-1
\tan^{-1}(2)  |  \arctan 2  ;  2^{10}  |  1024  ;  5 \text{ or } -5  |  \pm 5
1,2,3  |  3, 1, 2  ;  1,2  |  1 \text{ and } 2  |  x=1 \text{ or } x=2  ;  x=1,y=2  |  y=2,x=1  |  (1,2)  |  1,2
e^{i\pi/3}  |  \frac{1}{2}+\frac{\sqrt{3}}{2}i  ;  \emptyset  |  \varnothing  ;  \mathbb{R}  |  (-\infty,\infty)
11,111,111,100  |  11,\! 111,\! 111,\! 100  ;  10  |  10 apples  ;  f(x)=x^2  |  x^2  ;  \text{June 20}  |  June 20
x' + \frac{r}{V}x - rc = 0  |  x^{\prime}+\frac{r}{V} x-r c=0  ;  E_1, E_2  |  E_{2},E_{1}
A e^{-E_a/RT}  |  A e^{-\frac{E_a}{RT}}
\frac{Q}{4\pi\varepsilon_0 R_\odot^2}  |  \frac{1}{4\pi\epsilon_0}\frac{Q}{R_{\odot}^{2}}  ;  2+3i  |  2 + 3\mathrm{i}
70000  |  \$70,000  |  $70,000$  |  \$70,000.00  |  70,000\text{ dollars per year}  |  \text{\$}70000  |  USD 70000  |  €70000
70000  |  130,000 - 60,000 = \$70,000  |  \text{Profit} = 70,000  |  \text{Answer: } 70{,}000  |  ７００００
8  |  8 \text{ eggs}  |  8 years old  |  8\text{ cups of tea}  |  8 \text{ zeros}  |  8 yuan  |  8 元  |  \text{8 apples}  |  8cm
8  |  \boldsymbol{8}  |  {\color{blue}{8}}  |  \textcolor{red}{8}  |  \Large{8}  |  \mathbf{\text{8}}  |  **8**  |  {\bf 8}  |  8。
8  |  AB = 8  |  AB^2 = 8  |  P(X=2)=8  |  a+b+c=8  |  |AB| = 8  |  \cos A = 8  |  8_{10}  |  f(x) = 8  |  4!/3
8 \text{ inches}  |  8 \text{ in}  |  8 inch  |  8  ;  8\text{ cm}^2  |  8 \text{ square centimeters}  |  8 \text{ sq. cm}  |  8 cm^2
60\text{ mph}  |  60 \text{ miles per hour}  |  60 mi/h  ;  5.4 \text{ cents}  |  5.4\text{ cents per ounce}
28\%  |  28 percent  |  \text{28 percent}  |  28 pct  |  28 per cent  |  28％  ;  \$5 \text{ million}  |  5 \text{ million dollars}  |  5000000
204_5  |  204_{five}  |  (204)_5  |  204_{(5)}  ;  \frac{10!}{3!4!}  |  25200  ;  \frac13  |  0.\overline{3}  ;  120  |  5!  |  \binom{10}{3}
3\times 10^8  |  3 x 10^8  |  3*10**8  ;  14-i  |  14.0 + -1.0i  ;  Yes  |  yes  ;  No  |  no  ;  Odd  |  odd  ;  5  |  \text{USD 5}  ;  2x  |  f(x)=2x \text{ for all real } x
100,200  |  200, 100  |  100200  ;  (10,100)  |  (10, 100)  ;  12,600  |  12600  ;  15,000, 20,000  |  15000, 20000
\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}  |  \begin{bmatrix} 0.5 \\ 3 \\ \end{bmatrix}  |  (\frac12,3)  |  \left(\begin{array}{c} \frac12 \\ 3 \end{array}\right)
2x+4y-3=0  |  y=-\frac{1}{2}x+\frac{3}{4}  |  4x+8y-6=0  ;  [1,\infty)  |  \{x \mid x \ge 1\}  ;  (2,3)  |  P(2,3)
5  |  f^{-1}(2)=5  |  (f\circ g)(x)=5  |  \gcd(12,18)=5  |  \det A=5  |  A_1B_1=5  |  \text{Var}(X)=5  |  E[X]=5  ;  a(b+c)  |  (b+c)\cdot a
(1,2)\cup(3,4)  |  (3,4)\cup(1,2)  |  1<x<2\text{ or }3<x<4  |  (1,2),(3,4)  ;  (0,36)\setminus\{9\}  |  (0,9)\cup(9,36)
(-\infty,1),(2,\infty)  |  (-\infty,1)\cup(2,\infty)
\frac12  |  e=0.5  ;  e=\frac12  |  \frac12  |  e=0.5  ;  3  |  i=3  ;  e=2  |  2  ;  5  |  e = 2+3 = 5
x=1 \text{ or } x=2  |  x_1=1,x_2=2  ;  x=1\pm\sqrt2  |  x_1=1+\sqrt2, x_2=1-\sqrt2  |  x_{1,2}=1\pm\sqrt2
\frac14  |  \mathbb{P}(A)=\frac14  ;  5  |  \mathbb{E}[X]=5  |  \mathbb{E}(X)=5
n\cdot n!  |  n!\cdot n  ;  \binom{2n}{n}  |  \frac{(2n)!}{(n!)^2}  ;  \frac{n(n+1)}{2}  |  \binom{n+1}{2}  ;  \binom{n}{k}  |  \frac{n!}{k!(n-k)!}  ;  \frac{(n+2)!}{n!}  |  (n+1)(n+2)  ;  n(n-1)  |  \frac{n!}{(n-2)!}  ;  \frac{1}{n+1}\binom{2n}{n}  |  \frac{(2n)!}{n!(n+1)!}  ;  (n-3)!  |  \frac{(n-2)!}{n-2}
x\sqrt{x}  |  \sqrt{x^3}  ;  \sqrt{ab}  |  \sqrt a\sqrt b  ;  \sqrt{2gh}  |  \sqrt{2g}\sqrt{h}  ;  36x\sqrt{35x}  |  36\sqrt{35x^3}  ;  2x\sqrt{2x}  |  \sqrt{8x^3}  ;  \sqrt{x-100}+1  |  1+\sqrt{x-100}  ;  \sqrt{\frac{a}{b}}  |  \frac{\sqrt a}{\sqrt b}
lw  |  wl  ;  pq  |  qp  ;  mgh  |  mhg  ;  nRT  |  RTn  ;  60^\circ  |  \frac{\pi}{3}\text{ rad}  ;  \frac{\pi}{3}\text{ rad}  |  60^\circ
k\pi, k\in\mathbb{Z}  |  k\pi \text{ for all integers } k  |  n\pi, \forall n \in \mathbb{Z}  ;  x=k\pi, k\in\mathbb{Z}  |  x = k\pi \text{ for any integer } k
2x \text{ for all integers } x  |  2x  ;  f(n)=2n \text{ for all } n \in \mathbb{Z}  |  f(n)=2n  |  2n  ;  2x  |  2x \text{ for all integers } x  ;  5  |  5 \text{ for all integers } n
10^{2024}-1  |  -1+10^{2024}  ;  \frac{10^{2024}-1}{9}  |  \frac{1}{9}(10^{2024}-1)  ;  2024!  |  2024\cdot 2023!  ;  \binom{2024}{1012}  |  \frac{2024!}{(1012!)^2}
\frac{1}{x-1}  |  \frac{1}{x-1}, x\neq 1  |  \frac{1}{x-1}, \quad x \ne 1  |  f(x)=\frac{1}{x-1}, x\ne1  ;  f(x)=\frac{1}{x-1}  |  f(x)=\frac{1}{x-1}, x\ne 1  |  \frac{1}{x-1}, x\ne 1
\frac{1}{x(x-1)}  |  \frac{1}{x(x-1)}, x\ne 0, x\ne 1
""")
RIGHT_SCIENCE = pairs(r"""
3:00 \text{ PM}  |  3 \text{ pm}
7.2 m  |  T_1 = 7.2\ m  ;  7.2  |  pH: 7.2  ;  H_2SO_4  |  \ce{H2SO4}  ;  CO_2  |  CO₂
8.81 J  |  E \approx 8.81 \text{ J}  |  E = 8.814 J  ;  8.81, 3.22  |  8.814, 3.221  ;  (8.81, 3.22)  |  (8.814, 3.221)  ;  78.5  |  25\pi  |  25\pi \approx 78.54
A  |  A. P(A)  |  A. \frac{B}{2}  |  A. 5 C  |  A. F = BIL  |  A. a b c  |  A. \text{a red ball}  |  A. e^{-x}  |  A. C_2H_6  |  A. \text{ATP and NADPH}  |  A: it increases  |  A. 5 d
k_BT  |  k_B T  |  k_{B}T  |  k_{\text{B}}T  |  Tk_B  |  k_{\mathrm B}T  ;  m_ec^2  |  m_e c^2  |  m_{e}c^2  ;  \mu_kmg  |  \mu_k mg  |  \mu_k m g
1.10 \text{ V}  |  E^\circ_{\text{cell}}=1.10 \text{ V}  |  E_{\text{cell}}^\circ=1.10\text{ V}  ;  -285.8 \text{ kJ/mol}  |  \Delta H^\circ_f=-285.8 kJ/mol  |  \Delta G^{\circ}_{\text{rxn}}=-285.8\text{ kJ/mol}  |  \Delta_f H^\circ=-285.8
3t+1  |  v(t)=3t+1  |  x(t)=3t+1  |  \rho(r)=3t+1  |  \Delta E=3t+1  |  |B|=3t+1  |  |\vec F|=3t+1  |  \dot x=3t+1  ;  3kx  |  \frac{dv}{dt}=3kx
4.76  |  pKa=4.76  |  pK_a=4.76
A  |  A. \ce{H2O}  |  A. I and II  |  \text{A. I and II only}  |  A. 5 and 6  |  A. 1, 2, 3  |  A. Na^+  |  A. \text{sp}^3  |  \text{(A) I, II and III}  |  A - increases  |  A \text{ (increases)}  |  a)  |  A. 5 A  |  A. E = mc^2
SO_4^{2-}  |  SO₄²⁻  |  \ce{SO4^2-}  ;  Na^+  |  Na⁺  |  Na^{1+}  ;  Fe^{3+}  |  Fe^{+3}  |  Fe³⁺  ;  ^{14}_{6}C  |  \ce{^{14}_{6}C}  |  {}_6^{14}\mathrm{C}
20 \text{ N}\cdot\text{m}  |  20 Nm  |  20\text{ N-m}  |  20\text{ newton-meters}  ;  5 \mu\text{m}  |  5 \text{ microns}  ;  5 \text{ eV}  |  5 \text{ electron-volts}
6.0\text{ m/s}  |  6.0\text{ m/s to the right}  |  6.0\text{ m/s east}  |  \SI{6.0}{m/s}  |  \qty{6.0}{m/s}  ;  30^\circ  |  30^\circ\text{ above the horizontal}
red  |  Red  |  RED  ;  ice  |  Ice  ;  ma  |  F = ma  ;  NO  |  NO  |  \ce{NO}  ;  No  |  no  |  NO
5 m/s  |  5 \frac{m}{s}  |  5\ \text{m}\,\text{s}^{-1}  |  5 m s^{-1}  |  5 meters/second  |  5 m/sec  |  v = 5\ \mathrm{m/s}  |  5.0 m/s  |  5 m\cdot s^{-1}
5.0 \times 10^{14} Hz  |  5.0e14 Hz  |  5 × 10^14 Hz  |  5.0\cdot10^{14}\ \text{Hz}  |  f = 5.0 \times 10^{14}\,\mathrm{Hz}  |  5.0*10^{14} hertz
2H_2 + O_2 \rightarrow 2H_2O  |  2H_2+O_2 \to 2H_2O  |  2 H_2 + O_2 → 2 H_2O
10\ \Omega  |  10 ohms  |  10 Ω  |  10 Ω  |  10\,\Omega  |  R = 10\ \Omega  |  10 ohm  |  10\text{ }\Omega
6.63 \times 10^{-34} J s  |  6.63e-34 J·s  |  6.626 \times 10^{-34}\ \text{J}\cdot\text{s}  |  6.63\times10^{-34}\,\mathrm{J\,s}  |  6.63 × 10⁻³⁴ J s
3  |  \text{3 moles}  |  3 mol  |  n = 3  |  pH = 3  |  \text{pH} = 3.0  |  3.0
B  |  B. 12 m/s  |  (B) 12 m/s  |  \textbf{B}  |  b  |  \text{(b)}  |  \text{Option B}  |  B: 12  |  \text{B) } 12
3.0 \times 10^8 m/s  |  3.0e8 m/s  |  3.00 \times 10^{8}\,\text{m/s}  |  3 × 10^8 m/s  |  c = 3.0 \times 10^{8}\ \mathrm{m\,s^{-1}}  |  3.0 x 10^8 m/s  |  300000000 m/s  |  3.0·10⁸ m/s  |  (3.0 \times 10^8) m/s
4.5 g  |  4.5 grams  |  4.5\,\text{g}  |  4.50 g  |  m = 4.5 g  |  4.5 g NaCl  |  4.5\text{ g of NaCl}
25 cm^3  |  25\text{ cm}^3  |  25 cubic centimeters  |  25 cm³  |  25 cc  |  V = 25\ \mathrm{cm^3}
Mg(OH)_2  |  \text{Mg(OH)}_2  |  \ce{Mg(OH)2}  |  Mg(OH)2  |  \mathrm{Mg(OH)_2}
0.5 mol/L  |  0.5 M  |  0.50 mol/L  |  0.5\ \text{mol}/\text{L}  |  0.5 mol L^-1  |  0.5 mol·L⁻¹  |  0.5 moles per liter  |  [A] = 0.5 M
4.0 × 10^{-7} m  |  4.0e-7 m  |  4.0 \times 10^{-7}\text{ m}  |  400 \times 10^{-9} m  |  \lambda = 4.0 \times 10^{-7}\ \mathrm{m}
x = v_0 t + \frac{1}{2}at^2  |  v_0 t + \frac{1}{2} a t^2  |  x = v_0t+0.5at^2
A  |  a  |  (A)  |  \text{A}  |  A)  |  (a)  |  A: it increases  |  (A) It increases  |  A. It increases because T rises
B  |  B. It does not change
""")
WRONG_MATH = pairs(r"""
5,2  |  \binom{5}{2}
3.46  |  2\sqrt{-3} \approx 3.46  ;  12  |  \sqrt144x  |  12^\circ 5'  ;  3_6  |  3_7  ;  (3,5)  |  (5,3)
5  |  5\text{ Millionen}  |  5 Prozent  |  5 Dutzend  |  5 pour cent  |  5 тысяч рублей  |  5\text{만}  |  5 triệu  |  5\text{ألف}  |  5\text{ஆயிரம்}
\frac{x+2}{9}  |  \frac{x+2}{9}!  ;  x/10  |  (x/10)!  ;  n/2  |  \frac{(n/2)!}{(n/2-2)!}
5  |  5 \text{ grand}  |  5 \text{ bps}  |  5 \text{ squares}  |  5 \text{ short}  |  5 \text{ off}  |  5 \text{ hecto}
2\sqrt3  |  2\sqrt3 \approx 3.56  |  3\sqrt3 \approx 3.46  |  x \approx 3.46  ;  5  |  \approx 5.0  |  5 (\approx 7)  |  5 \text{ or } 5  ;  3  |  \pi \approx 3  ;  6.92  |  2 (\approx 3.46)
2x  |  \frac{dx}{dy}=2x  ;  f(x)=2x  |  f(x)=2x \text{ for all } x \in \{1\}  ;  \mathbb{R}  |  \text{all real numbers except 2}  ;  5  |  5 \text{ more}  |  5 \text{ more than 3}  ;  3 \text{ g of CO2}  |  3 \text{ g of H2O}
k\pi, k \in \mathbb{Z}  |  k\pi  |  n\pi, k \in \mathbb{Z}  |  k\pi, k \in \mathbb{N}  ;  x>2  |  x>2, x \in \mathbb{Z}  ;  5  |  5 (k \in \mathbb{Z})  ;  (-2,2)  |  |x| \le 2  ;  (-x,x)  |  |x|<x
3:00 PM  |  3 a.m.  |  3:30pm  ;  3 \text{ hours } 5 \text{ minutes}  |  5 \text{ hours } 3 \text{ minutes}  |  3, 5  ;  \frac13  |  0.33\ldots  ;  21  |  C(7,3)  |  \text{twenty-two}
5 \text{ dollars gained}  |  5 \text{ dollars lost}  ;  5  |  f(1,2] = 5
A+B+C  |  A+B+c  ;  x+C  |  x+b  ;  12  |  \text{Twice it is }12  |  \text{Bob has }12, \text{Tom has }13  |  \text{The sum is not }12
Tom  |  moT  ;  Ben  |  neB  ;  one  |  eon  ;  ABC  |  ACB  ;  red  |  der  ;  AB  |  BA  ;  No  |  on
(3,7)  |  y=3, x=7  |  (b,a)=(3,7)  |  x=3\text{ or }y=7  |  x=3,x=7  |  (y,x)=(3,7)  |  \begin{cases}x=7\\y=3\end{cases}
(-\infty,-2)\cup(3,\infty)  |  x<-2\text{ and }x>3  |  \{x\mid x<-2\text{ and }x>3\}
\frac{\pi}{6}  |  \frac{\pi}{6}^\circ  |  \frac{\pi}{6}\text{ degrees}
12  |  12 \text{ lakhs}  |  12 \text{ crores}  |  12 \text{ mn}  |  12 \text{ bn}  |  12 \text{ M}  |  12 \text{ myriad}  |  12 \text{ sevenths}  |  12 \text{ itself}  |  12 \text{ negated}  |  12 \text{ reversed}
12  |  12 \text{ complement}  |  12 \text{ conjugate}  |  12 \text{ transpose}  |  12 \text{ quadruple}  |  12 \text{ exponent}  |  12 \text{ est.}  |  12 \text{ estimated}  |  12 \text{ ish}  |  12 \text{ etc.}  |  12 \text{ others}
12  |  12 \text{ onwards}  |  12 \text{ higher}  |  12 \text{ lower}  |  12 \text{ undefined}  |  12 \text{ NaN}  |  12 \text{ nope}  |  12 \text{ infinite}  |  12 \text{ th}  |  12 \text{ st}  |  12 \text{ remainder}
12  |  \text{The answer is not }12  |  \text{The answer is about 12}  |  \text{The answer is }13  |  \text{Tom has 12 apples or 13}  |  (f\circ g)(2)=13  |  f^2=12  |  \text{twenty}
12  |  -f(x)=12  |  \int_0^1 x\,dx=12=13  |  \text{half}=12  |  \sin(12^\circ)
\begin{pmatrix}3\\-7\end{pmatrix}  |  (-7,3)^T  ;  10\text{ cents}  |  11¢  |  10€
204_5  |  204_{\text{base 6}}  ;  a_nb  |  a_{nb}  |  a_b n  ;  (0,9)\cup(9,36)  |  (0,36)\setminus\{8\}  |  [0,36)\setminus\{9\}  |  (0,36)\setminus\{40\}
(-2,3)  |  x=-2,3  ;  3:4  |  4∶3  ;  \frac{1}{2}  |  2⁄1  |  \nicefrac{2}{1}  ;  72^\circ  |  71\textdegree
(-\infty,-2)\cup(3,\infty)  |  x<-2 \text{ and } x>3  ;  4  |  f^{2}(5)=4  |  x'(2)=4
5  |  5 \text{ for all but one } x  |  5 \text{ for all but finitely many } n  |  5 \text{ for any wrong } x  |  |5,5|
5  |  5 \text{ isn't}  |  5 \text{ wasn't right}  |  5 \text{ cannot}  |  5 \text{ unlikely}  |  5 \text{ repeating}
5  |  5 \text{ recurring}  |  5 \text{ binary}  |  5 \text{ octal}  |  5 \text{ hex}  |  5 \text{ hexadecimal}  |  5 \text{ minimum}
5  |  5 \text{ maximum}  |  5 \text{ upwards}  |  5 \text{ gross}  |  5 \text{ bn}  |  5 \text{ mn}  |  5 \text{ myriad}  |  5 \text{ myriads}
5  |  5 \text{ per mille}  |  5 \text{ permille}  |  5 \text{ (approx)}  |  5 \text{ (approx.)}  |  5 \text{ (about)}  |  5 \text{ (max)}
5  |  5 \text{ gallon squared}  |  5 \text{ gal}^2  |  5 \text{ square acres}  |  5 \text{ cups cubed}  |  5 \text{ dollars squared}
x>5  |  x>5 \text{ for all negative } x
(x,y)=(2,3)  |  y=2, x=3  |  x=3, y=2  ;  x \ne 2  |  2  |  x \ne 3  |  (-\infty,2)  |  y \ne 2  |  (-\infty,2]\cup(2,\infty)
\frac{1}{3}  |  0.3  |  0.33 \text{ repeating} x  |  3 \text{ repeating}  ;  5 \text{ kg}  |  5 \text{ mg}  |  5 \text{ HP}
5  |  5 \text{ hundred}  |  5 dozen  |  5 \text{ and a half}  |  5\frac{1}{2}  |  5 \text{ squared}  |  5^\circ 7'  |  5, 7  |  5 \text{ or } 7
5  |  5 \approx 7  |  7=5  |  \text{not } 5  |  5 \pm 1  |  5x  |  5!  |  5:7  |  5\%
5  |  5 \text{ percent}  |  5 \text{ million}  |  5K  |  5M  |  5k  |  5 \text{ k}  |  5e  |  5i
5  |  5 \text{ feet } 7 \text{ inches}  |  5 \text{ ft } 7 \text{ in}  |  5 hours 30 minutes  |  5 \text{ hours and } 30 \text{ minutes}  |  5 \text{ (or 7)}  |  5\ (7)  |  5 \text{ to } 7  |  5-7
5  |  5–7  |  5 \text{ out of } 7  |  5 \text{ of } 7  |  \text{between 5 and 7}  |  5 \text{ fewer than } 7  |  5 \text{ plus } 7  |  5 \text{ tenths}  |  5\text{ thirds}
5  |  \sqrt5  |  \log 5  |  \text{five or six}  |  (5,5)  |  5,5  |  [5,5]  |  \{5,7\}  |  \text{at least } 5
5  |  \text{at most 5}  |  \text{more than 5}  |  5 \text{ or more}  |  5+  |  \text{5+}  |  \ge 5  |  x^2 = 5  |  2x = 5
5  |  x = 5 = 6  |  4=5  |  5 \to 7  |  5 \Rightarrow 7  |  5 \equiv 1 \pmod 2  |  5 \pmod{7}  |  5 \bmod 7  |  \overline{5}
5  |  \bar 5  |  \underbrace{5}_{7}  |  \cancel{5} 7  |  \text{5 and 7}  |  5 \text{ each, or } 10  |  5 \text{ if } x=7  |  5 \text{ times } 2  |  5 \text{ doubled}
5  |  \text{twice } 5  |  \text{half of } 5  |  5\text{ less } 1  |  5 \text{ score}  |  5 \text{ lakh}  |  5 万  |  5 \text{ trillion}  |  0.5
5  |  \begin{pmatrix} 5 & 7 \end{pmatrix}  |  |5-7|  |  \lfloor 5.5 \rfloor + 1  |  ⌈5.5⌉  |  P(5)  |  f(5)  |  f(x)=5x  |  \angle 5  |  \text{Evelyn: 5, Carla: 7}
5  |  5 \text{ eggs, } 7 \text{ apples}  |  5 \text{ eggs and } 7  |  5;7  |  5 \mid 7  |  5|7  |  5\cup 7  |  5 \in \{5,7\}  |  x \in \{5,7\}
5  |  x \in \{5\} \cup \{7\}  |  5 \setminus \{7\}  |  \mathbb{R} \setminus \{5\}  |  \emptyset
\$5  |  \$5, \$7  |  -\$5  |  \$0.05  |  £5  |  5 \text{ pounds}
60\text{ mph}  |  60 \text{ km/h}  |  60 \text{ miles}  |  60 \text{ hours}  |  60 \text{ m/s}  |  60 \text{ mi/s}
[0,1)  |  (0,1)  |  [0,1]  |  (0,1]  |  0<x<1  |  0 \le x \le 1  |  [0,1) \cup \{2\}  |  [0,2)  |  x \ge 0
\text{(C)}  |  (D)  |  \text{(C) or (D)}  |  C, D  |  \text{not C}  |  c  |  (CD)  |  \text{neither}  |  C+1
12,600  |  12, 600  |  12.600  |  600, 12  |  12600.5  |  126,00  |  1260
\text{Evelyn}  |  \text{Evelyn and Carla}  |  \text{not Evelyn}  |  \text{Evelyn or Carla}  |  Carla  |  \text{Evelyn?}  |  \text{Ev}  |  \text{Evelyn, Carla}
\begin{pmatrix} 1 & 2 \\ 3 & 4\end{pmatrix}  |  \begin{pmatrix} 1 & 3 \\ 2 & 4\end{pmatrix}  |  \begin{vmatrix} 1 & 2 \\ 3 & 4\end{vmatrix}  |  1,2,3,4  |  (1,2,3,4)  |  \begin{pmatrix} 1 & 2 & 3 & 4\end{pmatrix}  |  \begin{pmatrix} 1 & 2 \\ 3 & 5\end{pmatrix}
3:00 \text{ p.m.}  |  3:00 \text{ a.m.}  |  3:00 AM  |  4:00 PM
90^\circ  |  \pi  |  90 \pi  |  90\%  |  90^\circ \text{C}  |  91^\circ
A \in B  |  B \in A  ;  a<b<c  |  c<b<a  |  a<c<b
5  |  3=5  |  2+2=5  |  5x  |  5 million  |  5.0000001  |  5=x=6  |  x \ne 5  |  x>5  |  \text{about } 5  |  5 dozen  |  5 \text{ dozen}  |  5 \text{ squared}  |  5 hundred  |  5 squared  |  5 or so  |  \text{more than } 5  |  5\text{ cm}x  |  m+n = 2+4 = 5  |  5x=5  |  x+1=5  |  5 \text{ for all } 7  |  5, \ldots  |  5...  |  5'  |  5 \approx 5.1  |  5 \sim 7  |  \neg 5  |  \overline 5  |  \text{All except }5  |  5\text{, maybe}  |  5\text{ thousand}  |  1/2/0.1  |  10/2x  |  --5  |  5^1^1
\text{(C)}  |  A=(C)  ;  R  |  \text{r}  ;  11z^{17}  |  11z^{17}+0.5  ;  3  |  3 \cdots
\text{(C)}  |  (C) 12  |  (C)x  |  (C)!  ;  1,2  |  1,2,2  |  1,2,3  ;  204_5  |  204  |  54  |  204_{6}
\text{Evelyn}  |  Carla  ;  \text{even}  |  odd  |  \text{even or odd}  ;  x-2y+z-1=0  |  x-2y+z+1=0
\sin(2x)  |  \sin x \cos x  ;  2^{100}  |  2^{100}+1  ;  \sqrt{2}  |  \sqrt{2}+10^{-15}  |  \sqrt{2}t
0.5  |  \frac{1}{2} \text{ or } \frac{1}{3}  ;  R^2-r^2  |  0  ;  \gcd(a,b)  |  1
\text{no solution}  |  \text{no real solutions}  ;  k\pi, k \in \mathbb{Z}  |  2k\pi, k \in \mathbb{Z}  ;  -3,0  |  -3
x=1,y=2 \text{ or } x=3,y=4  |  x=5,y=6 \text{ or } x=7,y=8  |  y=1,x=2 \text{ or } y=3,x=4
5  |  \text{not } x = 5  |  \text{more than } x = 5  |  \text{base 7: } 5  |  5 \text{ eggs or } 7  |  5 thirty  |  \$5 \text{ K}  |  5 \text{ x}  |  5 per cent
5  |  \text{yes } 5  |  USD 6  ;  \text{no}  |  on  |  yes  ;  5  |  (x,y)=5  |  x^2=5  |  -x=5  |  5\text{ feet } 7 \text{ inches}  |  5:30  |  \{x \mid 5\}  |  5^\circ 30'  |  5 \text{ millionths}  |  2mg
8\text{ dollars}  |  8 \text{ cents}  ;  1,2  |  1<x<2  ;  8  |  8 万  |  8万元  ;  8 \text{ cm}^2  |  8 \text{ cm}  |  8 \text{ cubic cm}  ;  28\%  |  28  |  28 \text{ dollars}
12:00  |  1:00  |  12:05  |  12:00\%  |  12:00 \text{ thousand}  ;  48\%  |  48\%\text{ per cent}  ;  7.5  |  7 + 50\%  |  7+50\text{ per cent}  ;  1:2:3  |  1:4:9  ;  204_5  |  204_6  ;  xy=9  |  9  ;  2x+4y-3=0  |  2x+4y-3  |  2x+4y+3=0
6  |  A\cdot 2=6  |  P\cdot 3=6  |  u\sqrt{2}=6  |  uv=6  |  Ax=6  |  hx=6, vt=6  |  q n!=6
7  |  7 \text{ elevenths}  |  7 \text{ twentieths}  |  7 ninetieths  |  7 \text{ fifteenth}  |  7 \text{ (unsure)}
(1,2),(3,4)  |  (1,2)\cup(3,4)
2e  |  e=2e  ;  3+4i  |  i=3+4i  ;  e  |  e=2  ;  a  |  e=a  ;  0.5  |  e=0.6  ;  e=2  |  x=2
x_1=1,x_2=2  |  x_2=1,x_1=2  ;  x=1  |  y_1=1
\frac{n!}{2}  |  \frac{n!}{3}  ;  n!  |  (n-1)!  ;  \binom{n}{k}  |  \binom{n}{k+1}  |  \frac{n!}{k!}  ;  \binom{n}{2}  |  \frac{n^2}{2}  ;  n!  |  (-1)^n n!  ;  2n  |  2n+\binom{n}{2}(1-(-1)^{2n})  |  2n+n!\sin(\pi n)
|x|\sqrt{y}  |  x\sqrt{y}  ;  \sqrt{x^2y}  |  x\sqrt{y}  ;  \sqrt{x^2}  |  x  ;  |x|  |  (\sqrt{x})^2  ;  x\sqrt{x}  |  -\sqrt{x^3}  |  x\sqrt{-x}  ;  \ln(xy)  |  \ln x+\ln y  ;  \sqrt{ab}  |  \sqrt{a}+\sqrt{b}
\lfloor x\rfloor  |  \lceil x\rceil-1  |  \lfloor x+0.02\rfloor  ;  red  |  der  ;  AB  |  BA  ;  60^\circ  |  60\text{ rad}  |  \frac{\pi}{4}\text{ rad}
k\pi, k\in\mathbb{Z}  |  k\pi \text{ for all } k  |  2k\pi \text{ for all integers } k  |  n\pi \text{ for all integers } k  |  k\pi
10^{2024}-1  |  10^{2024}+1  |  10^{2024}  ;  3^{1012}  |  \sqrt{3^{2024}+1}  ;  2024!  |  2024!+1  ;  5  |  10^{99999999}  |  \frac{1}{10^{1001}}
\frac{1}{x-1}  |  \frac{1}{x-1}, x\neq 2  |  \frac{1}{x-2}, x\ne 2  |  \frac{1}{x-1}, 2  |  \frac{1}{x-1}, y\ne 1  |  \frac{1}{x-1}, x=1  ;  5  |  5, x\ne 1
""")
WRONG_SCIENCE = pairs(r"""
25 m s^{-1}  |  25 m s  ;  25 eV  |  25 MeV  ;  25 °C  |  25^\circ\text{F}  ;  25 N  |  25 N m  ;  25.25 V  |  25.26 V  ;  25 J/mol  |  25 J mol
3.27 N to the right  |  3.271 N to the left  ;  9.87e-3  |  \sin 9.87e-3  ;  35.0 kJ released  |  35.0 \text{ kJ absorbed}
A  |  A. 5 {B}  |  A. 5 (b)  |  A. \text{Answer} = B  |  A. answer is b  |  A. \text{Actually, C}  |  A. \mathbf{B}  |  A. \text{m} (B)  |  A. (b)  |  A. b  |  A. Answer: B  |  A. 5, B  |  A. 5; (D)
HCN  |  HNC  |  CHN  ;  NO  |  No  |  ON  ;  Co  |  oC  |  CO  ;  Cs  |  sC  ;  AB  |  BA  ;  red  |  der  ;  gas  |  sag  ;  up  |  pu  ;  DNA  |  AND
A  |  A. 5 B  |  A. 5 \quad \text{Answer: B}  |  A. 5 (C)  |  A. (B) 5  |  A. [B]  |  A. \{B\}  |  A. b  |  A. \to B  |  A. = B  |  A. +B  |  A. \text{5 (C)}  |  A. \text{C)}  |  A. (C)  |  (A) 5, (C) 6
A  |  A. 5 or 6  |  A. I and B  |  B. I and II  |  A. \ce{H2O} (B)  |  b)  |  A - B  |  A. H2O, B. CO2  |  A. not I, but B
k_BT  |  k_{BT}  |  k_T B  ;  Fe^{3+}  |  Fe^{+2}  |  Fe^{-3}  ;  SO_4^{2-}  |  SO₄²⁺  |  SO₃²⁻  ;  ^{14}_{6}C  |  ^{14}_{7}C  |  ^{13}_{6}C  |  ^{6}_{14}C
2H_2+O_2\rightarrow2H_2O  |  \ce{2H2 + O2 -> H2O}  |  2H_2O\to2H_2+O_2
20 \text{ N}\cdot\text{m}  |  20 nm  |  20 N  ;  6.0\text{ m/s east}  |  6.0\text{ m/s west}  ;  6.0\text{ m/s}  |  \SI{6.0}{m}  |  6.0\text{ m to the right}
30^\circ\text{ above the horizontal}  |  30^\circ\text{ below the horizontal}
5 \text{ microns}  |  5 \text{ nm}  ;  3kx  |  \frac{dv}{dt}=4kx
5 m/s  |  5 m  |  5 m/s^2  |  5 km/s  |  5 s/m  |  5 m s  |  5 mm/s  |  6 m/s  |  50 m/s
B  |  C  |  A. 5 m/s  |  (C) 5  |  BC  |  B or C  |  \text{not B}  |  B, C  |  B. or C.
10 \Omega  |  10 k\Omega  |  10 V  |  100 \Omega  |  10 \Omega m  |  1 \Omega
8.31  |  8.3  |  8.32  |  8.4  |  83.1  |  8.31\%  |  8.31 \times 10^2
7  |  pH = 8  |  pH 7 or 8  |  pOH = 7, pH=8
25 °C  |  25 K  |  25 °F  |  298 K  |  26 °C
5 mW  |  5 MW  |  5 W
5 kJ  |  5000 J  |  5 J  |  5 kJ/mol  |  5 kj/s
9.8 \text{ m/s}^2  |  9.81 m/s^2  ;  5 km  |  5000  |  5000 m  ;  5 \text{ mol}  |  5 \text{ mmol}  ;  72\%  |  72
25 °C  |  298.15 K  ;  CO2  |  CO  ;  1.67 \times 10^{-27} kg  |  1.67e-26 kg  ;  50 N  |  50 \text{ N}\cdot\text{m}
B  |  12  |  B. C.  |  B. not C  |  A. 12 m/s  |  B. 12 or 13  |  B, 12  ;  A  |  A and B  ;  1 kJ  |  1000 J
water  |  heavy water  ;  2-methylpropane  |  3-methylpropane  ;  Fe^{3+}  |  Fe^{2+}
B  |  B: not this one  |  B. is excluded
""")
