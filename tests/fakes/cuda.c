/* A CUDA driver, with its management library, that only counts, for tests of the probe on machines without a card.
 *
 *   cc -shared -fPIC -O1 -o libcuda.so.1 cuda.c -lpthread       (and the same file as libnvidia-ml.so.1)
 *
 * Several processes share one card through the file FAKE_CUDA_STATE. It is strict: what was not reserved can not be mapped, what
 * was not taken can not be freed. What it can be told:
 *
 *   FAKE_CUDA_TOTAL       bytes of the card, 16 GiB by default
 *   FAKE_CUDA_OTHERS      bytes that others hold
 *   FAKE_CUDA_INIT        the error of cuInit
 *   FAKE_CUDA_RETAIN      the error of cuDevicePrimaryCtxRetain
 *   FAKE_CUDA_LOST_AFTER  allocations after which every call fails with 719
 *   -DNO_VMM              no address ranges
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int R;
typedef uint64_t u64;
#define MIB (1ULL << 20)
#define PIECE (2 * MIB)

/* Shared by the processes on the card. */
static struct state { u64 used, most_used; } *S, alone;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int has_context, allocations;
static u64 next_address = 0x700000000000ULL, next_range = 0x600000000000ULL, next_handle = 1;
static struct range { u64 a, n; int kind; } table[1 << 16];
static int count;
enum { MEMORY = 1, RANGE, PAGES, HANDLE, HOST, POOLED };
static u64 pool_held, pool_used, pool_threshold;
static struct { u64 a, n; } pool_free[4096];
static int pool_free_count;

struct stream { volatile int busy; void (*fn)(void *); void *arg; };
struct event { struct stream *s; int was_busy; };

static u64 setting(const char *name, u64 other) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, 0, 0) : other;
}
static u64 total(void) { return setting("FAKE_CUDA_TOTAL", 16ULL << 30); }
static struct state *state(void) {
    if (!S) {
        const char *path = getenv("FAKE_CUDA_STATE");
        int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
        if (fd >= 0 && !ftruncate(fd, sizeof *S)) {
            S = mmap(0, sizeof *S, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (S == MAP_FAILED) S = 0;
        }
        if (!S) S = &alone;
    }
    return S;
}
static u64 used(void) { return __atomic_load_n(&state()->used, __ATOMIC_SEQ_CST) + setting("FAKE_CUDA_OTHERS", 0); }
static int is_lost(void) { return allocations > (int)setting("FAKE_CUDA_LOST_AFTER", 1 << 30); }
#define ALIVE do { if (is_lost()) return 719; if (!has_context) return 201; } while (0)

static R take(u64 n) {
    struct state *s = state();
    pthread_mutex_lock(&lock);
    allocations++;
    if (used() + n > total()) { pthread_mutex_unlock(&lock); return 2; }
    u64 now = __atomic_add_fetch(&s->used, n, __ATOMIC_SEQ_CST);
    if (now > s->most_used) s->most_used = now;
    pthread_mutex_unlock(&lock);
    return is_lost() ? 719 : 0;
}
static void give(u64 n) { __atomic_sub_fetch(&state()->used, n, __ATOMIC_SEQ_CST); }
static R add(u64 a, u64 n, int kind) {
    if (count == 1 << 16) return 2;
    table[count++] = (struct range){a, n, kind};
    return 0;
}
static u64 take_out(u64 a, int kind) {
    for (int i = 0; i < count; i++)
        if (table[i].a == a && table[i].kind == kind) { u64 n = table[i].n; table[i] = table[--count]; return n; }
    return 0;
}
static int lies_in(u64 a, u64 n, int kind) {
    for (int i = 0; i < count; i++)
        if (table[i].kind == kind && table[i].a <= a && a + n <= table[i].a + table[i].n) return 1;
    return 0;
}
static u64 rounded(u64 n, u64 to) { return (n + to - 1) / to * to; }

R cuInit(unsigned f) { (void)f; return (R)setting("FAKE_CUDA_INIT", 0); }
R cuDeviceGetCount(int *n) { *n = 1; return 0; }
R cuDeviceGet(int *d, int i) { if (i) return 101; *d = 0; return 0; }
R cuDeviceGetName(char *s, int n, int d) { (void)d; strncpy(s, "Fake GPU", (size_t)n); return 0; }
R cuDeviceGetPCIBusId(char *s, int n, int d) { (void)d; strncpy(s, "0000:0F:00.0", (size_t)n); return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) {
    (void)d;
    R refused = (R)setting("FAKE_CUDA_RETAIN", 0);
    if (refused) return refused;
    if (take(500 * MIB)) return 2;
    has_context = 1;
    *c = (void *)0x10;
    return 0;
}
R cuDevicePrimaryCtxRelease_v2(int d) {
    (void)d;
    if (!has_context) return 201;
    has_context = 0;
    give(500 * MIB);
    for (int i = 0; i < count; i++) if (table[i].kind == MEMORY || table[i].kind == HANDLE) give(table[i].n);
    if (pool_held) { give(pool_held); pool_held = 0; }
    count = 0;
    return 0;
}
R cuCtxSetCurrent(void *c) { return c == (void *)0x10 ? 0 : 201; }
R cuMemGetInfo_v2(size_t *f, size_t *t) { ALIVE; *t = total(); *f = total() - used(); return 0; }
R cuMemAlloc_v2(u64 *p, size_t n) {
    ALIVE;
    u64 whole = rounded(n, PIECE);
    R r = take(whole);
    if (r) return r;
    *p = next_address;
    next_address += whole;
    return add(*p, whole, MEMORY);
}
R cuMemFree_v2(u64 p) { ALIVE; u64 n = take_out(p, MEMORY); if (!n) return 1; give(n); return 0; }
R cuMemsetD8Async(u64 p, unsigned char v, size_t n, void *s) {
    (void)v; (void)s;
    ALIVE;
    /* An expandable block may lie over several pages: its ends must be mapped. */
    int in = lies_in(p, n, MEMORY) || lies_in(p, n, POOLED) || (lies_in(p, 1, PAGES) && lies_in(p + n - 1, 1, PAGES));
    return in ? 0 : 1;
}
R cuMemHostAlloc(void **p, size_t n, unsigned f) { (void)f; ALIVE; *p = malloc(16); return add((u64)(uintptr_t)*p, n, HOST); }
R cuMemFreeHost(void *p) { ALIVE; if (!take_out((u64)(uintptr_t)p, HOST)) return 1; free(p); return 0; }

static void *host_thread(void *p) { struct stream *s = p; s->fn(s->arg); s->busy = 0; return 0; }
R cuStreamCreate(void **s, unsigned f) { (void)f; ALIVE; *s = calloc(1, sizeof(struct stream)); return 0; }
static void wait_for(struct stream *s) { while (s && s->busy) usleep(200); }
R cuStreamDestroy_v2(void *s) { wait_for(s); free(s); return 0; }
R cuStreamSynchronize(void *s) { ALIVE; wait_for(s); return 0; }
R cuCtxSynchronize(void) {
    ALIVE;
    if (pool_held > pool_used && !pool_threshold) {
        state()->used -= pool_held - pool_used;
        for (int i = 0; i < pool_free_count; i++) take_out(pool_free[i].a, POOLED);
        pool_held = pool_used;
        pool_free_count = 0;
    }
    return 0;
}
R cuLaunchHostFunc(void *p, void (*fn)(void *), void *arg) {
    struct stream *s = p;
    pthread_t t;
    ALIVE;
    if (!s) return 400;
    wait_for(s);
    s->fn = fn; s->arg = arg; s->busy = 1;
    if (pthread_create(&t, 0, host_thread, s)) return 999;
    pthread_detach(t);
    return 0;
}
R cuEventCreate(void **e, unsigned f) { (void)f; ALIVE; *e = calloc(1, sizeof(struct event)); return 0; }
R cuEventRecord(void *p, void *s) { struct event *e = p; ALIVE; e->s = s; e->was_busy = e->s && e->s->busy; return 0; }
R cuEventQuery(void *p) { struct event *e = p; ALIVE; return e->was_busy && e->s->busy ? 600 : 0; }
R cuEventSynchronize(void *p) { struct event *e = p; ALIVE; if (e->was_busy) wait_for(e->s); return 0; }
R cuEventDestroy_v2(void *e) { free(e); return 0; }

#ifndef NO_VMM
R cuMemAddressReserve(u64 *p, size_t n, size_t align, u64 a, u64 f) {
    (void)align; (void)a; (void)f;
    ALIVE;
    *p = next_range;
    next_range += rounded(n, 1ULL << 38);
    return add(*p, n, RANGE);
}
R cuMemAddressFree(u64 p, size_t n) { ALIVE; return take_out(p, RANGE) == n ? 0 : 1; }
R cuMemCreate(u64 *h, size_t n, const void *prop, u64 f) {
    (void)f;
    ALIVE;
    if (n % PIECE || ((const unsigned *)prop)[0] != 1 || ((const unsigned *)prop)[2] != 1) return 1;
    R r = take(n);
    if (r) return r;
    *h = next_handle++;
    return add(*h, n, HANDLE);
}
R cuMemRelease(u64 h) { ALIVE; u64 n = take_out(h, HANDLE); if (!n) return 1; give(n); return 0; }
R cuMemMap(u64 p, size_t n, size_t off, u64 h, u64 f) {
    (void)f;
    ALIVE;
    if (off || !lies_in(p, n, RANGE) || lies_in(p, 1, PAGES) || !lies_in(h, 1, HANDLE)) return 1;
    return add(p, n, PAGES);
}
R cuMemUnmap(u64 p, size_t n) { ALIVE; return take_out(p, PAGES) == n ? 0 : 1; }
R cuMemSetAccess(u64 p, size_t n, const void *desc, size_t c) {
    ALIVE;
    return c == 1 && ((const unsigned *)desc)[2] == 3 && lies_in(p, 1, PAGES) && lies_in(p + n - 1, 1, PAGES) ? 0 : 1;
}
#endif

R cuDeviceGetDefaultMemPool(void **p, int d) { (void)d; ALIVE; *p = (void *)0x20; return 0; }
R cuMemPoolSetAttribute(void *p, unsigned what, void *v) {
    ALIVE;
    if (p != (void *)0x20 || what != 4) return 1;
    pool_threshold = *(u64 *)v;
    return 0;
}
R cuMemPoolGetAttribute(void *p, unsigned what, void *v) {
    ALIVE;
    if (p != (void *)0x20 || what != 5) return 1;
    *(u64 *)v = pool_held;
    return 0;
}
R cuMemAllocAsync(u64 *p, size_t n, void *s) {
    (void)s;
    ALIVE;
    u64 whole = rounded(n, 32 * MIB);
    for (int i = 0; i < pool_free_count; i++)
        if (pool_free[i].n == whole) {
            *p = pool_free[i].a;
            pool_free[i] = pool_free[--pool_free_count];
            pool_used += whole;
            return 0;
        }
    R r = take(whole);
    if (r) return r;
    pool_held += whole;
    pool_used += whole;
    *p = next_address;
    next_address += whole;
    return add(*p, whole, POOLED);
}
R cuMemFreeAsync(u64 p, void *s) {
    (void)s;
    ALIVE;
    for (int i = 0; i < count; i++)
        if (table[i].a == p && table[i].kind == POOLED && pool_free_count < 4096) {
            pool_free[pool_free_count].a = p;
            pool_free[pool_free_count++].n = table[i].n;
            pool_used -= table[i].n;
            return 0;
        }
    return 1;
}

/* The management library: sees the card before this process has a context, and other processes' shares. */
R nvmlInit_v2(void) { return getenv("FAKE_CUDA_STATE") ? 0 : 9; }
R nvmlShutdown(void) { return 0; }
R nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { if (i) return 6; *d = (void *)0x30; return 0; }
R nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **d) { *d = (void *)0x30; return strcmp(pci, "0000:0F:00.0") ? 6 : 0; }
struct memory { unsigned version; u64 total, reserved, free, used; };
R nvmlDeviceGetMemoryInfo_v2(void *d, struct memory *m) {
    if (d != (void *)0x30 || m->version != (sizeof *m | 2u << 24)) return 25;
    m->reserved = 600 * MIB;
    m->total = total() + m->reserved;
    m->used = used();
    m->free = total() - m->used;
    return 0;
}
/* As in a container that hides process ids. */
R nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *p) { (void)d; (void)p; *n = 0; return 0; }
