"""Independent check: replays each pickle and looks at every truth address. python3 verify.py DIR [NAME...]"""
import glob, json, os, pickle, sys
d = sys.argv[1]; tot = [0, 0]; rows = []
for f in sorted(glob.glob(d + '/*.truth.json')):
    b = os.path.basename(f)[:-11]
    if len(sys.argv) > 2 and not any(a in b for a in sys.argv[2:]): continue
    t = json.load(open(f)); s = pickle.load(open(f"{d}/{b}.pickle", 'rb')); tr = s['device_traces'][0]
    tr = [e for e in tr if e['action'] != 'snapshot']
    live = {x['address']: x['requested_size'] for g in s['segments'] for x in g['blocks'] if x['state'].startswith('active')}
    for e in reversed(tr):
        if e['action'] == 'free_completed': live[e['addr']] = e['size']
        elif e['action'] == 'alloc': live.pop(e['addr'], None)
    first = dict(live); inst = sorted(t['instants'], key=lambda i: i['event']); k = 0; ok = n = 0; sums = 0; cover = 0; run = sum(live.values()); best = run; at = -1
    for i in range(len(tr) + 1):
        while k < len(inst) and inst[k]['event'] == i:
            I = inst[k]; k += 1; c = 0; seen = set(); srt = None
            for r, l in I['roles'].items():
                for a, z in l:
                    n += 1
                    if live.get(a, -1) >= z: ok += 1; c += live[a]; seen.add(a)
                    else:
                        h = [(x, y) for x, y in live.items() if x <= a and a + z <= x + y]
                        if h: ok += 1
                        if h and h[0][0] not in seen: c += h[0][1]; seen.add(h[0][0])
            sums += 1; cover += seen == set(live) and I['live_bytes'] == sum(live.values())
        if i == len(tr): break
        e = tr[i]
        if e['action'] == 'alloc':
            live[e['addr']] = e['size']; run += e['size']
            if run > best: best, at = run, i
        elif e['action'] == 'free_completed': live.pop(e['addr'], None); run -= e['size']
    p = t['peak']; pk = None if not p else (p['bytes'] == best and p['event'] == at and sum(p['roles'].values()) == best)
    # blocks: alloc event, free event and address agree with the trace
    bad = sum(not ((a == -1 and ad in first and first[ad] == z or a >= 0 and tr[a]['action'] == 'alloc' and tr[a]['addr'] == ad and tr[a]['size'] == z) and (fr is None or tr[fr]['action'] == 'free_completed' and tr[fr]['addr'] == ad)) for a, fr, ad, z, *_ in t['blocks'])
    acts = sum(len(I['roles'].get('activations', [])) for I in inst)
    left = k != len(inst)
    tot[0] += ok; tot[1] += n
    rows.append(f"{b:36} {len(tr):6} ev {os.path.getsize(d + '/' + b + '.pickle') // 1024:6} KiB  instants {len(inst):3} all live bytes explained {cover}/{sums}{' UNPLACED' if left else ''}  addresses {ok}/{n}  peak {pk}  blocks {len(t['blocks'])} bad {bad} act {acts} older {t['checks'].get('older_blocks_matched')} inst {t['checks'].get('instants_in_both_runs')}")
print('\n'.join(rows)); print('total', tot, tot[0] / max(1, tot[1]))
