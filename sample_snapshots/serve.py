import random, torch
W, L, H, NEW = 1024, 4, 8, 12
class Layer:
    def __init__(s):
        s.qkv = torch.randn(W, 3 * W, device="cuda", dtype=torch.half) * .02
        s.up = torch.randn(W, 4 * W, device="cuda", dtype=torch.half) * .02
        s.down = torch.randn(4 * W, W, device="cuda", dtype=torch.half) * .02
class Request:
    def __init__(s, prompt):
        s.left = random.randint(20, 60)
        s.keys = [torch.zeros(prompt, W, device="cuda", dtype=torch.half) for _ in range(L)]
        s.values = [torch.zeros(prompt, W, device="cuda", dtype=torch.half) for _ in range(L)]
def grow_cache(old, new):
    return torch.cat([old, new])
def attend(q, k, v):
    q, k, v = (t.view(-1, H, W // H).transpose(0, 1) for t in (q, k, v))
    scores = torch.softmax(q @ k.transpose(1, 2), -1)
    return (scores @ v).transpose(0, 1).reshape(-1, W)
def feed_forward(layer, x):
    return torch.relu(x @ layer.up) @ layer.down
def decode(model, request):
    x = torch.randn(NEW, W, device="cuda", dtype=torch.half)
    for i, layer in enumerate(model):
        q, k, v = (t.contiguous() for t in (x @ layer.qkv).chunk(3, 1))
        request.keys[i] = grow_cache(request.keys[i], k)
        request.values[i] = grow_cache(request.values[i], v)
        x = x + attend(q, request.keys[i], request.values[i])
        x = x + feed_forward(layer, x)
    request.left -= 1
def serve(steps=90):
    random.seed(1)
    model = [Layer() for _ in range(L)]
    live = []
    for step in range(steps):
        if len(live) < 10 and step % 3 == 0:
            live.append(Request(random.randint(300, 1800)))
        for request in live:
            decode(model, request)
        live = [r for r in live if r.left > 0]
