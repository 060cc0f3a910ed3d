/* A stand-in for libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 *   cc -shared -fPIC -O1 -o libnvidia-ml.so.1 nvml.c
 *
 * What it says is read from the text file named by FAKE_NVML_STATE at every call, so that a test can change it while a program
 * runs. One KEY=VALUE a line; the last of a key counts:
 *
 *   hang=1                     every call waits until this is gone
 *   init=0                     what nvmlInit_v2 answers (9 not loaded, 4 no permission, 18 versions differ)
 *   gpus=1                     number of devices
 *   0.total= 0.reserved= 0.used=   bytes of device 0; used is without the reserved part, as in the driver's second version
 *   0.proc=1234:734003200,1235:-1  compute processes, bytes or -1 for "not told"
 *   0.gproc=…                  graphics processes
 *   0.util= 0.memutil= 0.temp= 0.power= 0.throttle=
 *   0.err.memory=15            what the call answers instead: 3 not supported, 15 lost, 25 unknown version of the struct
 *   0.err.memory2=25           the same for the second version of the memory call only
 *   0.xid=79                   an event, told once for each change of its value
 *   0.accounting=1 0.peak=1234:734003200   the most a process ever had
 *   0.mig=1 0.instances=2      the device is divided; 0.m0.total, 0.m0.proc and so on are of its first instance
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct device { int index, is_instance; char key[16]; struct device *parent; } *device_t;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, WRONG_VERSION = 25 };

enum { GPUS = 16, INSTANCES = 7 };
static struct device devices[GPUS], instances[GPUS * INSTANCES];
static u32 users;
static u64 last_xid[16];

/* The value of a key in the state file; 1 when it is there. */
static int text(const char *key, char *out, size_t size)
{
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[8192];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(out, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static u64 number(const char *key, u64 otherwise)
{
    char value[64];
    return text(key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

static void hang(void)
{
    while (number("hang", 0)) nanosleep(&(struct timespec){0, 10000000}, NULL);
}

static u64 of(device_t d, const char *key, u64 otherwise)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s.%s", d->key, key);
    return number(whole, otherwise);
}

/* What stands before every call on a device: is it one, and is it told to fail? */
static u32 check(device_t d, const char *what)
{
    char key[64];
    hang();
    if (!users) return UNINITIALIZED;
    if (!(d >= devices && d < devices + GPUS) && !(d >= instances && d < instances + GPUS * INSTANCES)) return INVALID;
    snprintf(key, sizeof key, "err.%s", what);
    return (u32)of(d, key, OK);
}

#define ON(d, what) do { u32 error = check(d, what); if (error) return error; } while (0)

u32 nvmlInit_v2(void)
{
    hang();
    u32 answer = (u32)number("init", OK);
    if (answer == OK) {
        users++;
        for (int i = 0; i < GPUS; i++) {
            devices[i].index = i;
            snprintf(devices[i].key, sizeof devices[i].key, "%d", i);
            for (int j = 0; j < INSTANCES; j++) {
                device_t d = &instances[i * INSTANCES + j];
                d->index = j;
                d->is_instance = 1;
                d->parent = &devices[i];
                snprintf(d->key, sizeof d->key, "%d.m%d", i, j);
            }
        }
    }
    return answer;
}
u32 nvmlInitWithFlags(u32 flags) { (void)flags; return nvmlInit_v2(); }
u32 nvmlShutdown(void) { if (!users) return UNINITIALIZED; users--; return OK; }
u32 nvmlSystemGetDriverVersion(char *out, u32 size) { char v[80] = "580.95.05"; text("driver", v, sizeof v); snprintf(out, size, "%s", v); return OK; }
u32 nvmlSystemGetNVMLVersion(char *out, u32 size) { snprintf(out, size, "13.580.95.05"); return OK; }
u32 nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = (int)number("cuda", 13000); return OK; }
const char *nvmlErrorString(u32 code) { (void)code; return "stand-in"; }

u32 nvmlDeviceGetCount_v2(u32 *out) { if (!users) return UNINITIALIZED; *out = (u32)number("gpus", 1); return OK; }
u32 nvmlDeviceGetHandleByIndex_v2(u32 i, device_t *out) { if (!users) return UNINITIALIZED; if (i >= number("gpus", 1)) return INVALID; *out = &devices[i]; return OK; }
u32 nvmlDeviceGetIndex(device_t d, u32 *out) { ON(d, "index"); *out = (u32)d->index; return OK; }
u32 nvmlDeviceGetName(device_t d, char *out, u32 size)
{
    char key[32], name[96] = "NVIDIA H200";
    if (d->is_instance) snprintf(name, sizeof name, "NVIDIA H200 MIG 1g.18gb");
    ON(d, "name");
    snprintf(key, sizeof key, "%s.name", d->key);
    text(key, name, sizeof name);
    snprintf(out, size, "%s", name);
    return OK;
}
u32 nvmlDeviceGetUUID(device_t d, char *out, u32 size) {
    ON(d, "uuid");
    u32 of = (u32)(d->is_instance ? d->parent->index : 0);
    snprintf(out, size, "%s-%08x-%04x-0000-0000-000000000000", d->is_instance ? "MIG" : "GPU", d->index, of);
    return OK;
}

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };
u32 nvmlDeviceGetPciInfo_v3(device_t d, struct pci *out)
{
    ON(d, "pci");
    memset(out, 0, sizeof *out);
    out->bus = (u32)d->index + 1;
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return OK;
}

struct memory1 { u64 total, free, used; };
struct memory2 { u32 version; u64 total, reserved, free, used; };
static u64 total(device_t d) { return of(d, "total", d->is_instance ? 18253611008ULL : 150754820096ULL); }
static u64 reserved(device_t d) { return of(d, "reserved", d->is_instance ? 67108864ULL : 644939776ULL); }
u32 nvmlDeviceGetMemoryInfo(device_t d, struct memory1 *out)
{
    ON(d, "memory");
    out->total = total(d);
    out->used = of(d, "used", 0) + reserved(d);
    out->free = out->total - out->used;
    return OK;
}
u32 nvmlDeviceGetMemoryInfo_v2(device_t d, struct memory2 *out)
{
    ON(d, "memory");
    ON(d, "memory2");
    if (out->version != (sizeof *out | 2u << 24)) return WRONG_VERSION;
    out->total = total(d);
    out->reserved = reserved(d);
    out->used = of(d, "used", 0);
    out->free = out->total - out->reserved - out->used;
    return OK;
}
struct window { u64 total, free, used; };
u32 nvmlDeviceGetBAR1MemoryInfo(device_t d, struct window *out) { ON(d, "bar1"); out->total = 262144ULL << 20; out->used = 1 << 20; out->free = out->total - out->used; return OK; }

struct busy { u32 gpu, memory; };
u32 nvmlDeviceGetUtilizationRates(device_t d, struct busy *out) { ON(d, "util"); out->gpu = (u32)of(d, "util", 0); out->memory = (u32)of(d, "memutil", 0); return OK; }
u32 nvmlDeviceGetTemperature(device_t d, int sensor, u32 *out) { (void)sensor; ON(d, "temp"); *out = (u32)of(d, "temp", 40); return OK; }
u32 nvmlDeviceGetPowerUsage(device_t d, u32 *out) { ON(d, "power"); *out = (u32)of(d, "power", 75000); return OK; }
u32 nvmlDeviceGetEnforcedPowerLimit(device_t d, u32 *out) { ON(d, "powerlimit"); *out = 700000; return OK; }
u32 nvmlDeviceGetClockInfo(device_t d, int clock, u32 *out) { ON(d, "clock"); *out = clock == 2 ? 3201 : 1980; return OK; }
u32 nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, u64 *out) { ON(d, "throttle"); *out = of(d, "throttle", 1); return OK; }
u32 nvmlDeviceGetMigMode(device_t d, u32 *now, u32 *next) { ON(d, "mig"); if (d->is_instance) return NOT_SUPPORTED; *now = *next = (u32)of(d, "mig", 0); return OK; }
u32 nvmlDeviceGetMaxMigDeviceCount(device_t d, u32 *out) { ON(d, "mig"); *out = INSTANCES; return OK; }
u32 nvmlDeviceGetMigDeviceHandleByIndex(device_t d, u32 i, device_t *out)
{
    ON(d, "mig");
    if (d->is_instance || i >= of(d, "instances", 0) || i >= INSTANCES) return NOT_FOUND;
    *out = &instances[d->index * INSTANCES + (int)i];
    return OK;
}
u32 nvmlDeviceIsMigDeviceHandle(device_t d, u32 *out) { ON(d, "mig"); *out = (u32)d->is_instance; return OK; }
u32 nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t d, device_t *out) { ON(d, "mig"); if (!d->is_instance) return INVALID; *out = d->parent; return OK; }
u32 nvmlDeviceGetEccMode(device_t d, u32 *now, u32 *next) { ON(d, "ecc"); *now = *next = 1; return OK; }
u32 nvmlDeviceGetTotalEccErrors(device_t d, int kind, int counter, u64 *out) { (void)kind; (void)counter; ON(d, "ecc"); *out = of(d, "errors", 0); return OK; }

struct process { u32 pid; u64 used; u32 instance, compute; };
static u32 list(device_t d, const char *name, u32 *count, struct process *out)
{
    char key[64], value[8192];
    struct process found[256];
    u32 n = 0, room = *count;
    snprintf(key, sizeof key, "%s.%s", d->key, name);
    if (text(key, value, sizeof value)) {
        for (char *part = strtok(value, ","); part && n < 256; part = strtok(NULL, ",")) {
            u32 pid;
            long long used;
            if (sscanf(part, "%u:%lld", &pid, &used) != 2) continue;
            found[n].pid = pid;
            found[n].used = (u64)used;
            found[n].instance = found[n].compute = 0xFFFFFFFFu;
            n++;
        }
    }
    *count = n;
    if (n == 0) return OK;
    if (!out || room < n) return TOO_SMALL;
    memcpy(out, found, n * sizeof *found);
    return OK;
}
u32 nvmlDeviceGetComputeRunningProcesses_v3(device_t d, u32 *n, struct process *out) { ON(d, "proc"); return list(d, "proc", n, out); }
u32 nvmlDeviceGetGraphicsRunningProcesses_v3(device_t d, u32 *n, struct process *out) { ON(d, "gproc"); return list(d, "gproc", n, out); }
u32 nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t d, u32 *n, struct process *out) { ON(d, "mproc"); return list(d, "mproc", n, out); }

/* The most a process ever had. */
struct account { u32 gpu, memory; u64 peak, time, start; u32 running, reserved[5]; };
u32 nvmlDeviceGetAccountingMode(device_t d, u32 *out) { ON(d, "accounting"); *out = (u32)of(d, "accounting", 0); return OK; }
u32 nvmlDeviceGetAccountingStats(device_t d, u32 pid, struct account *out)
{
    struct process found[256];
    u32 n = 256, error;
    ON(d, "accounting");
    memset(out, 0, sizeof *out);
    if ((error = list(d, "peak", &n, found))) return error;
    for (u32 i = 0; i < n; i++) {
        if (found[i].pid != pid) continue;
        out->peak = found[i].used;
        out->running = 1;
        return OK;
    }
    return NOT_FOUND;
}

struct event { device_t device; u64 type, data; u32 instance, compute; };
static int set;
u32 nvmlEventSetCreate(void **out) { *out = &set; return OK; }
u32 nvmlEventSetFree(void *s) { return s == &set ? OK : INVALID; }
u32 nvmlDeviceGetSupportedEventTypes(device_t d, u64 *out) { ON(d, "events"); *out = 0x10B; return OK; }
u32 nvmlDeviceRegisterEvents(device_t d, u64 bits, void *s) { (void)bits; ON(d, "events"); return s == &set ? OK : INVALID; }
u32 nvmlEventSetWait_v2(void *s, struct event *out, u32 ms)
{
    (void)ms;
    if (s != &set) return INVALID;
    for (u32 i = 0; i < number("gpus", 1) && i < 16; i++) {
        u64 xid = of(&devices[i], "xid", 0);
        if (xid == last_xid[i]) continue;
        last_xid[i] = xid;
        if (!xid) continue;
        memset(out, 0, sizeof *out);
        out->device = &devices[i];
        out->type = 8;
        out->data = xid;
        return OK;
    }
    return TIMEOUT;
}
