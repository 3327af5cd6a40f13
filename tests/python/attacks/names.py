"""JSON that is deep, wide, or full of long names."""

from attacks import http1
from attacks.registry import attack
from attacks.unread import send_and_stay

OPEN = b'{"inputs":[{"name":"token","shape":%s,"datatype":"INT64","data":%s}]}'
MANY = 30 * 2**20


async def all_of(target, requests, count=4):
    await target.together(count, lambda index: http1.repeat(target, requests[index % len(requests)]))


def tokens(shape, data, model="tokens"):
    return http1.infer(model, OPEN % (shape, data))


@attack(clients=4)
async def deep_nesting(target):
    """Lists and objects thirty million deep."""
    requests = [
        tokens(b"[1]", b"[" * MANY), http1.infer("tokens", b"[" * MANY),
        http1.infer("tokens", b'{"a":' * (MANY // 5)), tokens(b"[" * MANY, b"[]"),
        http1.infer("tokens", b'{"id":' + b"[" * MANY),
        tokens(b"[1,1]", b"[" * MANY + b"1" + b"]" * MANY),
    ]
    await all_of(target, requests)


@attack(clients=4)
async def huge_shapes(target):
    """Shapes of more elements than there are, with little data."""
    shapes = [b"[65536,65536]", b"[1,65536]", b"[4611686018427387904,4]", b"[18446744073709551615,1]"]
    shapes += [b"[1e30,1]", b"[" + b"1," * 10**6 + b"1]"]
    await all_of(target, [tokens(shape, b"[1]") for shape in shapes], 6)


@attack(clients=4, in_short=False)
async def huge_shapes_in_binary(target):
    """The same, with a size in bytes that is not there."""
    requests = []
    sizes = {(65_536, 65_536): 2**35, (1, 65_536): 2**19, (2**61, 1): 2**64 - 8, (2**61, 8): 0}
    for shape, size in sizes.items():
        request = http1.binary("tokens", {"token": ("INT64", shape, b"")})
        requests.append(request.replace(b'size": 0', b'size": %d' % size))
    await all_of(target, requests)


@attack(clients=4, in_short=False)
async def many_names(target):
    """A hundred thousand inputs, and a hundred thousand outputs that are asked for."""
    tensor = b'{"name":"%d","shape":[1],"datatype":"INT64","data":[1]}'
    inputs = b'{"inputs":[%s]}' % b",".join(tensor % n for n in range(100_000))
    outputs = OPEN[:-1] % (b"[1,1]", b"[1]") + b',"outputs":[%s]}'
    same = outputs % b",".join([b'{"name":"language_id"}'] * 100_000)
    other = outputs % b",".join(b'{"name":"%d"}' % n for n in range(100_000))
    await all_of(target, [http1.infer("tokens", body) for body in (inputs, same, other)], 6)


@attack(clients=4, in_short=False)
async def long_names(target):
    """Names of thirty megabytes: of a tensor, a data type, a parameter, and an id to be repeated."""
    long = b"a" * MANY
    ask = b'{"inputs":[{"name":"token","shape":[1,1],"datatype":"INT64","data":[1]}],%s}'
    requests = [
        http1.infer("tokens", OPEN.replace(b"token", long) % (b"[1]", b"[1]")),
        http1.infer("tokens", OPEN.replace(b"INT64", long) % (b"[1]", b"[1]")),
        http1.infer("tokens", ask % (b'"parameters":{"%s":1}' % long)),
        http1.infer("tokens", ask % (b'"id":"%s"' % long)),
        http1.infer("tokens", ask % (b'"id":"%s"' % (b"\\u0001" * (MANY // 6)))),
        http1.infer("tokens", ask % (b'"outputs":[{"name":"%s"}]' % long)),
    ]
    await all_of(target, requests, 6)


@attack(clients=4, seconds=15, short_seconds=4)
async def long_strings_unread(target):
    """Strings of thirty megabytes where something else is expected, whose errors nobody reads."""
    long = b"a" * MANY
    generate = lambda body: http1.post("/v2/models/tokens/generate", body)
    requests = [
        http1.infer("tokens", b'"%s"' % long), http1.infer("tokens", b'{"inputs":"%s"}' % long),
        http1.infer("tokens", b'{"inputs":["%s"]}' % long), generate(b'{"%s":1}' % long),
        generate(b'{"text_input":"a","id":"%s"}' % long), generate(b'{"text_input":{"%s":1}}' % long),
    ]
    for request in requests:
        reader, writer = await target.open()
        status, _, reply = await http1.exchange(reader, writer, request)
        if status != 400 or len(reply) > 2000:
            target.fail(f"status {status} with {len(reply)} bytes")
        writer.close()
    await send_and_stay(target, requests, 12)


@attack(clients=4, in_short=False)
async def numbers_of_many_digits(target):
    """Numbers with thirty million digits, exponents and signs."""
    digits = b"7" * MANY
    data = [digits, b"0." + digits, b"1e" + digits, b"-" * MANY, b'"' + b"\\ud800" * (MANY // 6) + b'"']
    await all_of(target, [tokens(b"[1,1]", b"[" + value + b"]") for value in data], 5)


@attack(clients=32, in_short=False)
async def many_errors(target):
    """Wrong requests at a high rate, each of which is answered and counted."""
    requests = [http1.infer("tokens", b"{"), http1.infer("none", b"{}"), http1.get("/v2/nothing")]
    requests.append(tokens(b"[0,0]", b"[]"))
    await all_of(target, requests, 32)
