"""Draws plots as SVG without a library: panels with lines, one below the other, or bars."""

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 40
PANEL = 130
GAP = 34
COLOURS = ('#2563a8', '#c2410c', '#3f7d3a')
STYLE = 'font-family="sans-serif" font-size="12" fill="#333"'


def text(x, y, words, anchor='start', size=12):
    return '<text x="%.1f" y="%.1f" %s text-anchor="%s">%s</text>' % (
        x, y, STYLE.replace('"12"', '"%d"' % size), anchor,
        words.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;'))


def line(x1, y1, x2, y2, colour='#ccc', dashes=''):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>' % (
        x1, y1, x2, y2, colour, ' stroke-dasharray="%s"' % dashes if dashes else '')


def document(height, parts):
    return '\n'.join(['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">'
                      % (WIDTH, height, WIDTH, height),
                      '<rect width="100%" height="100%" fill="white"/>', *parts, '</svg>', ''])


def round_up(number):
    """Returns a round number that is not smaller."""
    magnitude = 1
    while magnitude * 10 < number:
        magnitude *= 10
    while magnitude > number:
        magnitude /= 10
    return next(magnitude * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if magnitude * step >= number)


def short(number):
    for factor, letter in ((1e6, 'M'), (1e3, 'k')):
        if number >= factor:
            return '%g%s' % (number / factor, letter)
    return '%g' % number


def panels(title, x_label, series):
    """Draws one panel for each of the series: (label, points)."""
    last = max(x for _, points in series for x, _ in points)
    bottom = TOP + len(series) * (PANEL + GAP) - GAP
    parts = [text(LEFT, 22, title, size=14)]
    for number, (label, points) in enumerate(series):
        parts += panel(TOP + number * (PANEL + GAP), label, points, last, COLOURS[number % len(COLOURS)])
    for step in range(0, 7):
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / 6
        parts.append(text(x, bottom + 16, '%.0f' % (last * step / 6), 'middle'))
    parts.append(text(WIDTH / 2, bottom + 34, x_label, 'middle'))
    return document(bottom + BOTTOM, parts)


def panel(top, label, points, last, colour):
    """Draws the frame, the scale and the line of one panel."""
    most = round_up(max(max(y for _, y in points), 1e-9) * 1.05)
    parts = [text(LEFT, top + 12, label)]
    for share in (0, 0.5, 1):
        y = top + 18 + (PANEL - 18) * (1 - share)
        parts += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 6, y + 4, short(most * share), 'end')]
    path = ' '.join('%.1f,%.1f' % (LEFT + (WIDTH - LEFT - RIGHT) * x / last,
                                   top + 18 + (PANEL - 18) * (1 - y / most)) for x, y in points)
    return parts + ['<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>' % (colour, path)]


BAR = 18
LABELS = 330


def bars(title, rows, reference):
    """Draws a bar for each row (label, ratio, lowest, highest, goal or None), and a line at the reference."""
    most = round_up(max([reference] + [highest for _, _, _, highest, _ in rows]))
    scale = (WIDTH - LABELS - 60) / most
    height = TOP + len(rows) * (BAR + 8) + 20
    parts = [text(10, 22, title, size=14)]
    for number, (label, ratio, lowest, highest, goal) in enumerate(rows):
        y = TOP + number * (BAR + 8)
        middle = y + BAR / 2
        parts += [text(LABELS - 8, middle + 4, label, 'end'),
                  '<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s" fill-opacity="0.75"/>' % (
                      LABELS, y, ratio * scale, BAR, COLOURS[0]),
                  line(LABELS + lowest * scale, middle, LABELS + highest * scale, middle, '#111'),
                  text(LABELS + highest * scale + 6, middle + 4, '%.2f' % ratio)]
        if goal is not None:
            parts.append(line(LABELS + goal * scale, y - 2, LABELS + goal * scale, y + BAR + 2, COLOURS[1]))
    x = LABELS + reference * scale
    parts += [line(x, TOP - 6, x, height - 18, '#777', '4 3'), text(x, height - 4, '%g' % reference, 'middle')]
    return document(height, parts)
