//! Host memory: what killed a program from outside, and what the system refused.

use crate::formats::oom_message::row::Trust::{self, Figures, Line, Phrase, Sure};
use crate::formats::oom_message::row::{Row, bare, row};
use crate::formats::oom_message::{Platform as P, Writer as W};

const RSS: &str = "anon-rss:{allocated}";
/// Forms of a memory limit in `kubectl describe`, in a manifest and in people's texts.
const LIMITS: &str = "<limits: memory: {limit} | <limits: cpu: {_} memory: {limit} | limits: memory: {limit} | limits: cpu: {_} memory: {limit} \
    | memory limit: {limit} | memory limit of {limit} | limit of {limit} | <limit of {limit} | (limit {limit} | limit {limit} ";
const CONTAINER: &str = "The container reached its limit of the machine's memory (not the GPU's){?, {limit},} and was killed.";
const SHARED: &str = "The shared memory (/dev/shm) that DataLoader workers pass their batches through is full; the GPU's memory is not what ran out.";
pub(in super::super) const KILLED: &str = "The program was killed from outside, most often by the system's out-of-memory killer: then the machine's memory (not the GPU's) ran out, or a container's limit of it.";
pub(super) const PAGING: &str = "Windows could not promise more memory: what its programs requested exceeds the machine's memory and its paging file together. The GPU's memory is not what ran out.";
pub(super) const PAGING_TIPS: &[&str] = &[
    "Let Windows make the paging file larger: System, Advanced, Performance, Virtual memory, \"System managed size\", on a drive with room.",
    "Load checkpoints without a second copy: `torch.load(path, mmap=True, map_location=\"cpu\")`; or a model of half precision.",
    "Use fewer DataLoader workers: on Windows each loads the program's libraries once more, which alone takes gigabytes.",
];
const SLURM: &str =
    "Slurm's limit for the job's memory on the machine (not the GPU's) was passed, and the system killed a task of it.";
const KERNEL: &str = "The machine's memory (not the GPU's) ran out, and the system killed {?process {killed}|this process}{?[0 < allocated], which held {allocated}}.";
const APPLE: &str = "The memory that this machine's processor and GPU share ran low, or the process reached its limit of it, and the system (jetsam) killed it.";
const LOST: &str = "A process of the program ended without a word. Most often the system killed it because the machine's memory (not the GPU's) ran out; a crash of its own reads the same.";
pub(in super::super) const RAY_LOST: &str = "Ray lost a worker process and does not know why: its text has the out-of-memory killer only as one of several causes that are possible, and \
    nothing else in it is about memory.";
const RAY_LOST_TIPS: &[&str] = &[
    "See what the worker wrote last: worker-*.err and python-core-worker-*.log in `/tmp/ray/session_latest/logs` of its node.",
    "See whether the system's out-of-memory killer did it: `dmesg -T | grep -i -E \"killed process|oom\"` (as root).",
];
const MAPPED: &str = "A tensor that processes share could not be mapped: the number of mappings that one process may have is used up (vm.max_map_count), or shared memory (/dev/shm) is. The GPU's memory is not what ran out.";
const NOTEBOOK: &str = "The notebook used all memory of its machine (not the GPU's), and was restarted.";
const NOTEBOOK_TIPS: &[&str] = &[
    "Take a machine with more memory: on Colab Runtime, Change runtime type, High-RAM.",
    "Load less at once: memory-mapped files, a part of the data, fewer DataLoader workers; load checkpoints with `torch.load(path, mmap=True)`.",
    "Let go of what earlier cells still hold: del the names, also _ and Out of the notebook, then `import gc; gc.collect()`.",
];
const KAGGLE_TIPS: &[&str] = &[
    NOTEBOOK_TIPS[1],
    NOTEBOOK_TIPS[2],
    "Kaggle lets nobody choose a larger machine for its GPUs: run the notebook elsewhere if it needs more.",
];
const OOMD_TIPS: &[&str] = &[
    "See what it measured and killed: `journalctl -u systemd-oomd`.",
    "Load less at once: fewer DataLoader workers, a smaller `prefetch_factor`, memory-mapped files; load checkpoints once and not in every process.",
    "Keep it from this program: run it in a unit of its own, `systemd-run --user --scope -p ManagedOOMPreference=avoid`; then the kernel decides.",
];
const NCCL_TIPS: &[&str] = &[
    "Give the container more shared memory: `docker run --shm-size=8g` or --ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm.",
    "Remove what programs that crashed left there: files /dev/shm/nccl-* that no process uses.",
    "Or let NCCL do without it (slower where the cards have no direct path): `NCCL_SHM_DISABLE=1`.",
    "See how full it is while the program runs: `df -h /dev/shm`.",
];
const STORE_TIPS: &[&str] = &[
    "Give the store more: `ray.init(object_store_memory=...)`, in a container also `--shm-size`.",
    "Hold fewer objects: ray memory lists them; del the references that are no longer needed.",
    "Put smaller objects, or pass a path.",
];
const STORE: &str =
    "Ray's object store, which lies in the machine's shared memory (not the GPU's), has no room for an object{? of {requested}}.";
const JETSAM: &str = "kernel: memorystatus: killing largest compressed process python3.11 [1879] 48012 MB";
const NUMPY_TIPS: &[&str] = &[
    "See whether the shape in the message is meant: a wrong axis or an index that is too large makes an array of any size.",
    "Store it in a smaller type: `dtype=numpy.float32` in place of float64 halves it.",
    "Work on a part at once: `numpy.memmap` or chunks; and del arrays that are no longer needed.",
    "Close other programs, or take a machine with more memory: where the array is small, the rest was full already.",
];
const KERNEL_UNTOLD: &str = "The machine's memory (not the GPU's) ran out, and the system killed this process.";

const fn killed(trust: Trust, anchor: &'static str, example: &'static str) -> Row {
    bare(W::Killer, P::Cpu, trust, anchor, example).says(KILLED)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(W::Cpu, P::Cpu, Figures, "Unable to allocate", "unable to allocate {requested} for",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 2.50 GiB for an array with shape (335544320,) and data type float64",
        "requested 2.50 GiB").near("for an array with shape|for array with form").tips(NUMPY_TIPS),
    bare(W::Cpu, P::Cpu, Sure, "Unable to allocate array with shape",
        "numpy.core._exceptions.MemoryError: Unable to allocate array with shape (9681, 9681) and data type float64")
        .tips(NUMPY_TIPS),
    bare(W::Cpu, P::Cpu, Sure, "throwing an instance of 'std::bad_alloc'",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"),
    bare(W::Cpu, P::Cpu, Sure, "[Errno 12] Cannot allocate memory", "OSError: [Errno 12] Cannot allocate memory"),
    bare(W::Cpu, P::Cpu, Line, "MemoryError",
        "Traceback (most recent call last):\n  File \"prepare.py\", line 12, in <module>\n    rows = [row * 2 for row in \
        rows]\nMemoryError").near("file\""),
    row(W::Cpu, P::Cpu, Figures, "bytes failed", "<memory allocation of {requested#}",
        "memory allocation of 34359738368 bytes failed\nAborted (core dumped)", "requested 32.00 GiB"),
    bare(W::Cpu, P::Cpu, Sure, "posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0",
        "RuntimeError: [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0"),
    row(W::Cpu, P::Cpu, Sure, "ArrowMemoryError:", "malloc of size {requested#} failed",
        "pyarrow.lib.ArrowMemoryError: malloc of size 4194304 failed", "requested 4.00 MiB").near("malloc of size"),
    bare(W::Shm, P::Cpu, Sure, "unable to mmap",
        "RuntimeError: unable to mmap 4096 bytes from file </torch_3628_3123_6335>: Cannot allocate memory (12)")
        .near("from file </torch_").says(MAPPED)
        .tips(&["Raise the number of mappings: `sysctl -w vm.max_map_count=1048576` (as root).",
            "Share fewer tensors between processes: collate samples into one tensor in the worker, fewer workers, or `num_workers=0`.",
            "Pass them as files instead: `torch.multiprocessing.set_sharing_strategy(\"file_system\")`."]),
    row(W::Cpu, P::Cpu, Figures, "unable to mmap", "mmap {requested} from file",
        "RuntimeError: unable to mmap 17179869184 bytes from file <./model.safetensors>: Cannot allocate memory (12)", "requested 16.00 GiB")
        .near("Cannot allocate memory"),
    bare(W::Cpu, P::Cpu, Sure, "java.lang.OutOfMemoryError: Java heap space",
        "Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space")
        .says("Java's heap is full, which has a limit of its own in the machine's memory; the GPU's memory is not what ran out.")
        .tips(&["Give Java a larger heap: `-Xmx16g`, in Spark spark.driver.memory or spark.executor.memory."]),
    bare(W::Cpu, P::Cpu, Sure, "[WinError 1455]",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.").says(PAGING).tips(PAGING_TIPS),
    bare(W::Cpu, P::Cpu, Sure, "(os error 1455)",
        "OSError: The paging file is too small for this operation to complete. (os error 1455)").says(PAGING).tips(PAGING_TIPS),
    row(W::Killer, P::Cpu, Figures, "due to memory used (", "used ({allocated#}) / total ({capacity#})",
        "systemd-oomd[842]: Killed /system.slice/train.service due to memory used (32305733632) / total (33046712320) and swap used \
        (7733248000) / total (8589930496) being more than 90.00%", "capacity 30.78 GiB, allocated 30.09 GiB").near("systemd-oomd")
        .says("The machine's memory (not the GPU's) and its swap ran low, and systemd-oomd killed the program{?: {allocated} of \
        {capacity} was in use}.").tips(OOMD_TIPS),
    bare(W::Killer, P::Cpu, Sure, "due to memory pressure for",
        "systemd-oomd[840]: Killed /user.slice/run.scope due to memory pressure for /user.slice being 51.07% > 50.00% for > 20s \
        with reclaim activity").near("systemd-oomd")
        .says("Programs waited for the machine's memory (not the GPU's) for too long, and systemd-oomd killed this one.").tips(OOMD_TIPS),
    row(W::Killer, P::Cpu, Sure, "Memory cgroup out of memory: Kill", "anon-rss:{allocated} | <<memory: usage {_}, limit {limit},",
        "memory: usage 67108864kB, limit 67108864kB, failcnt 7\nMemory cgroup out of memory: Killed process 1440763 (python3) total-vm:87033376kB, \
        anon-rss:62914560kB, file-rss:0kB", "limit 67108864 KiB, allocated 62914560 KiB")
        .says("The container or job reached its limit of the machine's memory (not the GPU's){?, {limit}}, and the system killed {?process \
        {killed}|this process}{?, which held {allocated}}."),
    row(W::Killer, P::Cpu, Sure, "Out of memory: Killed process", RSS,
        "Out of memory: Killed process 1440763 (perl) total-vm:87033376kB, anon-rss:62914560kB, file-rss:0kB", "allocated 62914560 KiB")
        .near("anon-rss").says(KERNEL),
    row(W::Killer, P::Cpu, Sure, "Out of memory: Kill", RSS,
        "kernel: Out of memory: Kill process 4242 (python) score 901 or sacrifice child\nkernel: Killed process 4242 (python) \
        total-vm:87033376kB, anon-rss:62914560kB, file-rss:0kB", "allocated 62914560 KiB").near("process").whole().says(KERNEL),
    row(W::Killer, P::Cpu, Sure, "Killed process", RSS,
        "kernel: Killed process 4242 (python) total-vm:87033376kB, anon-rss:62914560kB, file-rss:0kB", "allocated 62914560 KiB")
        .near("total-vm").says(KERNEL),
    bare(W::Killer, P::Cpu, Sure, "invoked oom-killer:",
        "[2612362.231458] python invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null), order=0, \
        oom_score_adj=829")
        .says("The machine's memory (not the GPU's), or a container's limit of it, ran out, and the system chose a process to kill: the lines \
        below in the kernel's log name it."),
    row(W::Killer, P::Cpu, Phrase, "OOMKilled", LIMITS,
        "    Last State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137\n    Limits:\n      cpu: 8\n      memory: 16Gi", "limit 16 GiB")
        .near("reason|exit code|container|pod").whole().says(CONTAINER),
    bare(W::Killer, P::Cpu, Sure, "OOMKilled",
        "NAME READY STATUS RESTARTS AGE\nworker-5f7d8c9b6d-h4kpz 0/1 OOMKilled 3 (30s ago) 6m18s")
        .near("0/1|0/2|0/3|0/4").says(CONTAINER),
    bare(W::Killer, P::Cpu, Sure, "OOMKilled\": true", "\"OOMKilled\": true,").says(CONTAINER),
    killed(Line, "Killed", "Killed"),
    killed(Line, "Killed: 9", "Killed: 9"),
    killed(Sure, "terminated with signal SIGKILL", "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL"),
    killed(Sure, "returned non-zero exit status -9", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status -9."),
    killed(Sure, "exit codes of the workers are {SIGKILL(-9)}", "TerminatedWorkerError: A worker process was unexpectedly terminated. The exit codes of the workers are {SIGKILL(-9)}"),
    bare(W::Killer, P::Cpu, Phrase, "exited unexpectedly", "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly")
        .near("DataLoader worker (pid").says(LOST),
    killed(Phrase, "exited with a non-zero status of 137", "The replica workerpool0-0 ran out-of-memory and exited with a non-zero status of 137(SIGKILL)."),
    bare(W::Killer, P::Cpu, Sure, "OutOfMemoryError: Container killed due to memory usage",
        "OutOfMemoryError: Container killed due to memory usage").says(CONTAINER),
    bare(W::Killer, P::Cpu, Phrase, "System OOM encountered, victim process",
        "Warning  SystemOOM  4m  kubelet  System OOM encountered, victim process: python, pid: 4711").says(KERNEL_UNTOLD),
    row(W::Killer, P::Cpu, Sure, "killed by YARN for exceeding", "limits. {allocated} of {limit} physical memory used",
        "Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used.", "limit 5.5 GiB, allocated 5.5 GiB")
        .says("The container reached its limit of the machine's memory (not the GPU's){?, {limit}}, and YARN killed it.")
        .tips(&["Give the executor more memory beside Java's heap: `spark.executor.memoryOverhead`, or fewer tasks at once: spark.executor.cores."]),
    bare(W::Killer, P::Cpu, Sure, "TERM_MEMLIMIT: job killed after",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.")
        .says("LSF's limit for the job's memory on the machine (not the GPU's) was passed, and LSF killed it.")
        .tips(&["Ask for more memory on the machine: `bsub -M` with `-R \"rusage[mem=...]\"`."]),
    row(W::Killer, P::Cpu, Sure, "PBS: job killed: mem", "killed: mem {allocated} exceeded limit {limit}",
        "=>> PBS: job killed: mem 3221340kb exceeded limit 3145728kb", "limit 3145728 KiB, allocated 3221340 KiB")
        .says("The job's limit of the machine's memory (not the GPU's){?, {limit},} was passed, and PBS killed it.")
        .tips(&["Ask for more memory on the machine: `qsub -l mem=`."]),
    row(W::Killer, P::Cpu, Figures, "Job has gone over memory limit of", "limit of {limit} | peak usage: {allocated}",
        "Job has gone over memory limit of 2048 megabytes. Peak usage: 2800 megabytes.", "limit 2048 MiB, allocated 2800 MiB")
        .says("The job's limit of the machine's memory (not the GPU's){?, {limit},} was passed, and HTCondor stopped it{?; it held up to {allocated}}.")
        .tips(&["Ask for more memory on the machine: `request_memory` in the submit file."]),
    bare(W::Killer, P::Cpu, Sure, "tried to allocate more memory than is available. It has restarted",
        "Your notebook tried to allocate more memory than is available. It has restarted.").says(NOTEBOOK).tips(KAGGLE_TIPS),
    bare(W::Killer, P::Cpu, Sure, "session crashed after using all available RAM",
        "Your session crashed after using all available RAM.").says(NOTEBOOK).tips(NOTEBOOK_TIPS),
    bare(W::Killer, P::Cpu, Sure, "% memory budget. Restarting",
        "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting")
        .says("A worker of Dask reached its limit of the machine's memory (not the GPU's), and its nanny restarted it.")
        .tips(&["Give each worker more: fewer workers, or `memory_limit` of the cluster.",
            "Let a task hold less: smaller partitions or chunks."]),
    killed(Phrase, "exit code 137", "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)").whole(),
    killed(Phrase, "exit status 137", "make: *** [train] error: exit status 137"),
    killed(Sure, "died with <Signals.SIGKILL: 9>", "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>."),
    killed(Phrase, "failed (exitcode: -9)", "failed (exitcode: -9) local_rank: 0 (pid: 77) of binary: python"),
    killed(Sure, "Signal 9 (SIGKILL) received by PID", "traceback : Signal 9 (SIGKILL) received by PID 77"),
    killed(Sure, "is killed by signal: Killed", "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.").near("DataLoader worker"),
    bare(W::Slurm, P::Cpu, Sure, "oom-kill event",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup. Some of your processes may have been killed \
        by the cgroup out-of-memory handler.").near("detected").says(SLURM),
    bare(W::Slurm, P::Cpu, Sure, "oom_kill event",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=647.7. Some of the step tasks have been OOM Killed.")
        .near("detected").says(SLURM),
    bare(W::Slurm, P::Cpu, Phrase, ": Out Of Memory", "srun: error: nid001277: tasks 1-3: Out Of Memory").near("srun: error")
        .says(SLURM),
    bare(W::Slurm, P::Cpu, Phrase, "Exceeded job memory limit", "slurmstepd: error: Exceeded job memory limit at some point.")
        .says(SLURM),
    bare(W::Slurm, P::Cpu, Phrase, "Exceeded step memory limit", "slurmstepd: error: Exceeded step memory limit at some point.")
        .says(SLURM),
    row(W::Slurm, P::Cpu, Phrase, "exceeded memory limit (", "limit ({allocated#K} > {limit#K}), being killed",
        "slurmstepd: error: Step 1141.0 exceeded memory limit (41943040 > 20971520), being killed",
        "limit 20971520 KiB, allocated 41943040 KiB").near("being killed")
        .says("The job held {?{allocated}|more} of the machine's memory (not the GPU's){?, more than Slurm's limit for it, {limit}| than Slurm's limit for it}, and Slurm killed it."),
    bare(W::Slurm, P::Cpu, Sure, "State: OUT_OF_MEMORY", "State: OUT_OF_MEMORY (exit code 0)").says(SLURM),
    bare(W::Slurm, P::Cpu, Sure, "OUT_OF_ME+", "1234.0    python3.12               default          1 OUT_OF_ME+    0:125")
        .says(SLURM),
    row(W::Ray, P::Cpu, Figures, "in object store because it is full", "object size is {requested} | capacity: {capacity#}",
        "ray.exceptions.ObjectStoreFullError: Failed to put object ffff in object store because it is full. Object size is 8589934592 bytes.",
        "requested 8.00 GiB").says(STORE).tips(STORE_TIPS),
    bare(W::Ray, P::Cpu, Phrase, "The plasma store ran out of memory",
        "plasma_out_of_memory.error: The plasma store ran out of memory and could not create this object.")
        .says(STORE).tips(STORE_TIPS),
    bare(W::Ray, P::Unknown, Sure, "killed by SIGKILL by OOM killer",
        "A worker died or was killed while executing a task by an unexpected system error. There are some potential root \
        causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.")
        .near("potential root causes").says(RAY_LOST).tips(RAY_LOST_TIPS),
    bare(W::Ray, P::Cpu, Phrase, "may have exceeded K8s pod memory limits",
        "Worker exit detail: Worker exits unexpectedly. Worker exits with an exit code None. The worker may have exceeded K8s \
        pod memory limits.").says(LOST),
    bare(W::Ray, P::Unknown, Sure, "WorkerCrashedError: The worker died unexpectedly",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check \
        python-core-worker-*.log files for more information.").says(RAY_LOST).tips(RAY_LOST_TIPS),
    row(W::Ray, P::Cpu, Sure, "killed due to the node running low on memory",
        "was running was {allocated} / {capacity} | was {allocated} / {capacity} (",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 172.17.0.2, \
        ID: 8c) where the task (task ID: 41, name=f, pid=548, memory used=12.18GB) was running was 126.50GB / 128.00GB (0.988), which \
        exceeds the memory usage threshold of 0.95.", "capacity 128.00 GiB, allocated 126.50 GiB")
        .says("The machine's memory (not the GPU's) ran low, so Ray killed a task of it{?: {allocated} of {capacity} was in use}."),
    bare(W::Ray, P::Cpu, Sure, "killed due to memory pressure (OOM)",
        "(raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due \
        to other reasons at node").says("The machine's memory (not the GPU's) ran low, so Ray killed workers on it."),
    bare(W::Shm, P::Cpu, Sure, "is killed by signal: Bus error",
        "RuntimeError: DataLoader worker (pid 3216) is killed by signal: Bus error. It is possible that dataloader's workers \
        are out of shared memory.").near("DataLoader worker").says(SHARED),
    bare(W::Shm, P::Cpu, Sure, "Unexpected bus error encountered in worker",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).")
        .says(SHARED),
    bare(W::Shm, P::Cpu, Sure, "unable to write to file </torch_",
        "RuntimeError: unable to write to file </torch_77_123_4>: No space left on device (28)").says(SHARED),
    bare(W::Shm, P::Cpu, Sure, "creating shared memory segment /dev/shm/",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-RZ3b (size 9637888)")
        .says("The shared memory (/dev/shm) that NCCL passes data through between processes is full; the GPU's memory is not what ran \
        out.").tips(NCCL_TIPS),
    killed(Phrase, "exit code: 137", "Error: container stopped, exit code: 137"),
    killed(Phrase, "exit code (137)", "[main] terminated with exit code (137). Reason [Error]. Message:"),
    row(W::Killer, P::Cpu, Sure, "The node was low on resource: memory", "using {allocated},",
        "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Container trainer was using 62914560Ki, which exceeds its \
        request of 0.", "allocated 62914560 KiB")
        .says("The node's memory (not the GPU's) ran low, and Kubernetes evicted the pod, whose container used {?{allocated}|more than it had requested}.")
        .tips(&["Request what the container needs, and limit it to the same: `resources.requests.memory` and resources.limits.memory of the pod. \
            Pods that use more than they requested are evicted first.",
            "Run it on a node with more memory, or with fewer pods beside it.",
            "Load less at once: fewer DataLoader workers, a smaller `prefetch_factor`, memory-mapped files."]),
    bare(W::Killer, P::Cpu, Sure, "memorystatus: killing", JETSAM).says(APPLE),
    bare(W::Killer, P::Cpu, Sure, "killing_specific_process pid",
        "kernel: killing_specific_process pid 1879 [python3.11] (per-process-limit 10)").says(APPLE),
    killed(Sure, "] Error 137", "make[2]: *** [build/train.o] Error 137").near("***"),
    killed(Phrase, "exit with status code 137", "Process 0 exit with status code 137."),
    killed(Sure, "exits with return code = -9", "['python', '-u', 'train.py', '--local_rank=7'] exits with return code = -9"),
    killed(Phrase, "return code: 137", "[Service log] Training ended with return code: 137"),
    killed(Phrase, "with code -9", "RuntimeError: worker exited during startup with code -9"),
    killed(Line, "killed", "killed"),
    killed(Line, "已杀死", "已杀死"),
    killed(Phrase, "exit code is 137", "Container killed on request. Exit code is 137"),
    killed(Phrase, "exited with code 137", "trainer-1 exited with code 137"),
    killed(Phrase, "exit code -9", "Process train finished with exit code -9"),
    killed(Sure, "exitcode  : -9 (pid", "  exitcode  : -9 (pid: 4242)"),
    bare(W::Killer, P::Cpu, Sure, "Failed with result 'oom-kill'", "systemd[1]: train.service: Failed with result 'oom-kill'.")
        .says(KERNEL_UNTOLD),
    row(W::Ray, P::Cpu, Sure, "RayOutOfMemoryError: More than", "is used ({allocated#G} / {capacity}",
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node gpu-1 is used (61.25 / 62.50 GB).",
        "capacity 62.50 GiB, allocated 61.25 GiB")
        .says("The machine's memory (not the GPU's) ran low, so Ray stopped a task{?: {allocated} of {capacity} was in use}."),
];
