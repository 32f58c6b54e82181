"""Hostile values for fuzz.py, and the model that says what the contract requires for them.

All values are text, exactly as they go into SQL or JSON, because Python's json module
would normalize them.  A document is a list of members.  A member is the text of its name
and of its value.  So a name can occur twice or contain escapes, and a value can be too
deep or too long for a parser.

The model is ttl_of(), due() and is_expired().  It implements the contract (which ttl is
valid, when a document expires) with Decimal and unbounded integers.  It shares no code
with the extension, and does not query the server.
"""

import decimal
import json

TTL_MAX = 2147483647
INVALID = 0                                     # the value of _ttl for an invalid ttl

# The end of PostgreSQL's timestamps, in microseconds since 2000-01-01.
END_OF_TIME = 9223371331200000000
SECOND = 1000000

NUMBERS = [
    '0', '-0', '0.0', '1', '-1', '-1.0', '-1e0', '2', '-2', '1.5', '0.5', '60', '60.0', '6e1', '6.0E+1',
    '600e-1',
    '60.0000000001', '1e2', '1e9', '1e10', '2147483646', '2147483647', '2147483647.0', '2147483647.4',
    '2147483647.5', '2147483648', '-2147483648', '-2147483649', '4294967295', '4294967296', '4294967297',
    '9223372036854775807', '9223372036854775808', '-9223372036854775809', '18446744073709551617',
    '0.00000000000000000000000000000000000001', '1e-1000', '1e1000', '1e131071', '-1e131071', '1e131072',
    '1e1000000', '1e-16383', '1e-16384', '1e99999999999', '1e2147483648',
    '9' * 1000, '9' * 131072, '9' * 131073, '1' + '0' * 130000, '60.' + '0' * 16383, '60.' + '0' * 16384,
    '60.' + '0' * 16382 + '1', '0.' + '0' * 16000 + '1', '-1.' + '0' * 5000, '1' + '0' * 9 + '.' + '0' * 100,
]
# JSON strings, with their quotes.
STRINGS = [
    '""', '"a"', '"60"', '"-1"', '"NaN"', '"Infinity"', '"-infinity"', '"null"', '"ttl"', '"id"', '"now"',
    '" 5"',
    '"5 "', '"1e5"', '"0x10"', '"1_000"', '"\\"quoted\\""', '"it\'s"', '"back\\\\slash"', '"\\u0041"',
    '"\\u00e9"',
    '"\\u6f22"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\b\\f\\n\\r\\t"', '"é"',
    '"漢字"',
    '"\U0001f600"', '"{1,2}"', '"[1,5)"', '"00000000-0000-0000-0000-000000000000"', '"2000-01-01"', '"t"',
    '"x x"',
    '"$1"', '"%s%n%d"', '"; DROP TABLE"', '"' + 'y' * 63 + '"', '"' + 'é' * 64 + '"', '"' + '漢' * 31 + 'x"',
    '"' + 'z' * 3000 + '"', '"\udc80\udcff"',
]
OTHER = ['null', 'true', 'false', '[]', '{}', '[null]', '[60]', '{"ttl": 60}', '{"a": {"b": [1, 2, {}]}}',
         '[[], {}]']
NAMES = [
    '"a"', '"b"', '"ttl"', '"\\u0074tl"', '"TTL"', '"ttl "', '"tt"', '"ttll"', '"id"', '"_ts"', '"_ttl"',
    '"_slot"', '""',
    '"$set"', '"é"', '"漢"', '"a.b"', '"\\ud83d\\ude00"', '"\\""', '"' + 'k' * 300 + '"',
]
INTEGERS = ['NULL', '0', '1', '-1', '2', '-2', '60', '2147483646', '2147483647', '-2147483647', '-2147483648']
BIGINTS = INTEGERS + ['9223372036854775807', '-9223372036854775807', '-9223372036854775808',
                      '9223371331200000000']
TEXTS = [
    '', ' ', 'a', 'A', 'my table', '"quoted"', '"', "'", "it's", 'a.b', 'a.b.c', 'a.b.c.d', '.', '..', 'a..b',
    'a.',
    'consistent', 'lazy', 'none', 'Consistent', 'LAZY ', 'doc', 'id', 'body', '_ts', '_ttl', '_slot', 'ctid',
    'xmin', 'tableoid',
    'nosuch', 'modified', 'pg_catalog.x', 'pg_toast.x', 'fuzz.x', 'fuzz."x y"', 'nosuch.x', 'pg_temp.x',
    'information_schema.x',
    'é', '漢字', '\U0001f600', '\udc80', 'x' * 63, 'x' * 64, 'é' * 32, '漢' * 21 + 'x', 'x' * 100000, '%s%n',
    '\\', '$1', '$$',
    '"' + '""' * 40 + '"', '0', '-1', '1', '2147483648', '1.5', 'NaN', 'Infinity', 'now', 'true', '\n',
    '\t\r', '--', '/*',
    'base', 'SELECT', 'table', '{}', '[]', '00000000-0000-0000-0000-000000000000', 'user', 'concurrently',
]
TIMES = [
    '-infinity', 'infinity', '4714-11-24 00:00:00+00 BC', '4713-01-01 00:00:00+00 BC',
    '0001-01-01 00:00:00+00',
    '1969-12-31 23:59:59.999999+00', '1970-01-01 00:00:00+00', '1999-12-31 23:59:59.999999+00',
    '2000-01-01 00:00:00+00',
    '2000-01-01 00:00:00.000001+00', '2000-01-01 00:01:04+00', '2038-01-19 03:14:08+00',
    '2100-02-28 12:00:00.5+00',
    '294208-12-11 20:45:52.999999+00', '294208-12-11 20:45:53+00', '294276-12-31 23:58:55.999999+00',
    '294276-12-31 23:59:59.999999+00',
]
INTERVALS = ['0', '1 second', '-1 second', '1.5 seconds', '30 minutes', '1 month -30 days', '2147483647 seconds',
             '2147483647.000001 seconds', '2147483648 seconds', '178000000 years', '-178000000 years']
OFFSETS = [0, 1, -1, 3600, -3600, TTL_MAX, -TTL_MAX, 86400 * 18000, -86400 * 18000]


def ttl_of(members):
    """Returns the ttl of a document: None if it inherits, INVALID if the contract does not allow it."""
    value = None
    for name, text in members:
        if json.loads(name) == 'ttl':           # the last member with this name counts
            value = text
    if value is None or value == 'null':
        return None
    if value[0] not in '-0123456789':
        return INVALID
    try:
        number = decimal.Decimal(value)
    except decimal.InvalidOperation:
        return INVALID                          # on 32 bits, Python has smaller exponents than the test
    if number == -1:
        return -1
    if 1 <= number <= TTL_MAX and number == number.to_integral_value():
        return int(number)
    return INVALID


def due(stamp, ttl):
    """Returns the time at which a document expires, in microseconds, or None for never.

    stamp is its _ts in microseconds, None if infinite.
    """
    if stamp is None or ttl <= 0 or stamp + ttl * SECOND >= END_OF_TIME:
        return None
    return stamp + ttl * SECOND


def is_expired(default_ttl, stamp, ttl, now):
    """Applies the matrix of the contract, for a collection whose DefaultTTL has never changed."""
    if default_ttl is None:
        return False
    when = due(stamp, default_ttl if ttl is None else ttl)
    return when is not None and when <= now


def merge_patch(target, patch):
    """Applies a merge patch (RFC 7396) to values that json.loads() returns."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


class Number(str):
    """The text of a JSON number."""


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number)


def unparse(value):
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return '{' + ', '.join(json.dumps(name) + ': ' + unparse(item) for name, item in value.items()) + '}'
    if isinstance(value, list):
        return '[' + ', '.join(unparse(item) for item in value) + ']'
    return json.dumps(value)


def literal(text):
    """Returns an SQL literal; None becomes NULL."""
    return 'NULL' if text is None else "'" + text.replace("'", "''") + "'"


def document_text(members):
    return '{' + ', '.join(name + ': ' + value for name, value in members) + '}'


class Values:
    """Draws hostile values from a random generator."""

    def __init__(self, rng, largest):
        self.rng = rng
        self.largest = largest                  # bytes of the largest documents

    def number(self):
        if self.rng.random() < 0.6:
            return self.rng.choice(NUMBERS)
        digits = str(self.rng.randrange(10 ** self.rng.randrange(1, 30)))
        fraction = '.' + str(self.rng.randrange(10 ** 6)) if self.rng.random() < 0.3 else ''
        exponent = self.rng.choice('eE') + str(self.rng.randrange(-40, 40)) if self.rng.random() < 0.3 else ''
        return self.rng.choice(['', '-']) + digits + fraction + exponent

    def scalar(self):
        return self.rng.choice([self.number, lambda: self.rng.choice(STRINGS),
                                lambda: self.rng.choice(OTHER)])()

    def small_json(self, depth=3):
        """Draws a value that is short and valid in all encodings."""
        kind = self.rng.randrange(6 if depth > 0 else 4)
        if kind < 4:
            return self.rng.choice(['1', '2.50', '1e3', '-0.0', '"s"', '"\\u0041\\""', 'null', 'null', 'true',
                                    '[]', '{}'])
        items = [self.small_json(depth - 1) for _ in range(self.rng.randrange(4))]
        if kind == 4:
            return '[' + ', '.join(items) + ']'
        return document_text([('"%s"' % self.rng.choice('abcd'), item) for item in items])

    def small_object(self):
        return document_text([('"%s"' % self.rng.choice('abcd'), self.small_json())
                              for _ in range(self.rng.randrange(5))])

    def deep(self):
        depth = self.rng.choice([10, 100, 1000, 3000, 5000, 6000, 8000, 50000])
        opening, closing = self.rng.choice([('[', ']'), ('{"a":', '}'), ('[{"ttl":', '}]')])
        return opening * depth + self.scalar() + closing * depth

    def large(self):
        size = self.rng.choice([100, 2000, 2100, 8200, 100000, self.largest])
        if self.rng.random() < 0.5:
            return '"' + self.rng.choice('xyz') * size + '"'
        if self.rng.random() < 0.5:
            return '"' + self.rng.randbytes(size // 2).hex() + '"'
        return '[' + ', '.join(str(i) for i in range(size // 8)) + ']'

    def json(self):
        kind = self.rng.random()
        if kind < 0.03:
            return self.deep()
        if kind < 0.06:
            return self.large()
        if kind < 0.5:
            return self.scalar()
        return document_text(self.members())

    def members(self, names=NAMES):
        """Draws the members of a document, with any names and values."""
        return [(self.rng.choice(names), self.json() if self.rng.random() < 0.2 else self.scalar())
                for _ in range(self.rng.randrange(5))]

    def document_with_ttl(self):
        """Draws a document that has no id and mostly has a ttl."""
        members = self.members([name for name in NAMES if name not in ('"id"', '"_ts"')])
        if self.rng.random() < 0.85:
            members.insert(self.rng.randrange(len(members) + 1),
                           (self.rng.choice(['"ttl"', '"ttl"', '"\\u0074tl"', '"t\\u0074l"']), self.ttl()))
        return members

    def ttl(self):
        kind = self.rng.random()
        if kind < 0.6:
            return self.number()
        if kind < 0.65:
            return self.deep()
        if kind < 0.7:
            return self.large()
        return self.scalar()

    def text(self):
        return self.rng.choice(TEXTS)

    def integer(self):
        if self.rng.random() < 0.8:
            return self.rng.choice(INTEGERS)
        return str(self.rng.randrange(-TTL_MAX, TTL_MAX))
