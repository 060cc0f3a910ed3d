//! The machine's own memory: what killed a program from outside, and what the system refused.

use super::Trust::{Figures, Line, Phrase, Sure};
use super::{Platform as P, Row, Writer as W, row};

const RSS: &str = "anon-rss:{allocated}";
const SHARED: &str = "The shared memory (/dev/shm) that DataLoader workers pass their batches through is full; the GPU's memory is not what ran out.";
pub(in super::super) const KILLED: &str = "The program was killed from outside, most often by the system's out-of-memory killer: then the machine's memory (not the GPU's) ran out, or a container's limit of it.";
pub(super) const PAGING: &str = "Windows could not promise more memory: what its programs requested exceeds the machine's memory and its paging file together. The GPU's memory is not what ran out.";
const SLURM: &str =
    "Slurm's limit for the job's memory on the machine (not the GPU's) was passed, and the system killed a task of it.";
const KERNEL: &str = "The machine's memory (not the GPU's) ran out, and the system killed this process, which held {allocated}.";
const APPLE: &str = "The memory that this machine's processor and GPU share ran low, or the process reached its limit of it, and the system (jetsam) killed it.";
const JETSAM: &str = "kernel: memorystatus: killing largest compressed process python3.11 [1879] 48012 MB";
const KERNEL_UNTOLD: &str = "The machine's memory (not the GPU's) ran out, and the system killed this process.";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(W::Cpu, P::Cpu, Figures, "Unable to allocate", "unable to allocate {requested} for an array",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 2.50 GiB for an array with shape (335544320,) and data type float64",
        "requested 2.50 GiB").near("for an array with shape"),
    row(W::Cpu, P::Cpu, Sure, "throwing an instance of 'std::bad_alloc'", "",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", ""),
    row(W::Cpu, P::Cpu, Sure, "[WinError 1455]", "",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.", "")
        .says(PAGING),
    row(W::Cpu, P::Cpu, Sure, "(os error 1455)", "",
        "OSError: The paging file is too small for this operation to complete. (os error 1455)", "").says(PAGING),
    row(W::Killer, P::Cpu, Figures, "due to memory used (", "used ({allocated#}) / total ({capacity#})",
        "systemd-oomd[842]: Killed /system.slice/train.service due to memory used (32305733632) / total (33046712320) and swap used \
        (7733248000) / total (8589930496) being more than 90.00%", "capacity 30.78 GiB, allocated 30.09 GiB").near("systemd-oomd")
        .says("The machine's memory (not the GPU's) and its swap ran low, and systemd-oomd killed the program: {allocated} of \
        {capacity} was in use."),
    row(W::Killer, P::Cpu, Sure, "due to memory pressure for", "",
        "systemd-oomd[840]: Killed /user.slice/run.scope due to memory pressure for /user.slice being 51.07% > 50.00% for > 20s with \
        reclaim activity", "").near("systemd-oomd")
        .says("Programs waited for the machine's memory (not the GPU's) for too long, and systemd-oomd killed this one."),
    row(W::Killer, P::Cpu, Sure, "Memory cgroup out of memory: Kill", RSS,
        "Memory cgroup out of memory: Killed process 1440763 (python3) total-vm:87033376kB, anon-rss:62914560kB, file-rss:0kB",
        "allocated 62914560 KiB")
        .says("The container or job reached its limit of the machine's memory (not the GPU's), and the system killed this process, \
        which held {allocated}."),
    row(W::Killer, P::Cpu, Sure, "Out of memory: Killed process", RSS,
        "Out of memory: Killed process 1440763 (perl) total-vm:87033376kB, anon-rss:62914560kB, file-rss:0kB", "allocated 62914560 KiB")
        .near("anon-rss").says(KERNEL),
    row(W::Killer, P::Cpu, Sure, "Out of memory: Kill", "",
        "kernel: Out of memory: Kill process 4242 (python) score 901 or sacrifice child", "").near("process").says(KERNEL_UNTOLD),
    row(W::Killer, P::Cpu, Phrase, "OOMKilled", "", "    Last State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137", "")
        .near("reason|exit code|container|pod").whole()
        .says("The container reached its limit of the machine's memory (not the GPU's) and was killed."),
    row(W::Killer, P::Cpu, Line, "Killed", "", "Killed", "").says(KILLED),
    row(W::Killer, P::Cpu, Phrase, "exit code 137", "", "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)", "")
        .whole().says(KILLED),
    row(W::Killer, P::Cpu, Phrase, "exit status 137", "", "make: *** [train] error: exit status 137", "").says(KILLED),
    row(W::Killer, P::Cpu, Sure, "died with <Signals.SIGKILL: 9>", "",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.", "").says(KILLED),
    row(W::Killer, P::Cpu, Sure, "failed (exitcode: -9)", "", "failed (exitcode: -9) local_rank: 0 (pid: 77) of binary: python", "")
        .says(KILLED),
    row(W::Killer, P::Cpu, Sure, "Signal 9 (SIGKILL) received by PID", "", "traceback : Signal 9 (SIGKILL) received by PID 77", "")
        .says(KILLED),
    row(W::Killer, P::Cpu, Sure, "is killed by signal: Killed", "",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "").near("DataLoader worker").says(KILLED),
    row(W::Slurm, P::Cpu, Sure, "oom-kill event", "",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup. Some of your processes may have been killed by the \
        cgroup out-of-memory handler.", "").near("detected").says(SLURM),
    row(W::Slurm, P::Cpu, Sure, "oom_kill event", "",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=647.7. Some of the step tasks have been OOM Killed.", "")
        .near("detected").says(SLURM),
    row(W::Slurm, P::Cpu, Phrase, ": Out Of Memory", "", "srun: error: nid001277: tasks 1-3: Out Of Memory", "").near("srun: error")
        .says(SLURM),
    row(W::Slurm, P::Cpu, Phrase, "Exceeded job memory limit", "", "slurmstepd: error: Exceeded job memory limit at some point.", "")
        .says(SLURM),
    row(W::Slurm, P::Cpu, Phrase, "Exceeded step memory limit", "", "slurmstepd: error: Exceeded step memory limit at some point.", "")
        .says(SLURM),
    row(W::Ray, P::Cpu, Sure, "killed due to the node running low on memory",
        "was running was {allocated} / {capacity} | was {allocated} / {capacity} (",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 172.17.0.2, \
        ID: 8c) where the task (task ID: 41, name=f, pid=548, memory used=12.18GB) was running was 126.50GB / 128.00GB (0.988), which \
        exceeds the memory usage threshold of 0.95.", "capacity 128.00 GiB, allocated 126.50 GiB")
        .says("The machine's memory (not the GPU's) ran low, so Ray killed a task of it: {allocated} of {capacity} was in use."),
    row(W::Ray, P::Cpu, Sure, "killed due to memory pressure (OOM)", "",
        "(raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other \
        reasons at node", "").says("The machine's memory (not the GPU's) ran low, so Ray killed workers on it."),
    row(W::Shm, P::Cpu, Sure, "is killed by signal: Bus error", "",
        "RuntimeError: DataLoader worker (pid 3216) is killed by signal: Bus error. It is possible that dataloader's workers are out of \
        shared memory.", "").near("DataLoader worker").says(SHARED),
    row(W::Shm, P::Cpu, Sure, "Unexpected bus error encountered in worker", "",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "").says(SHARED),
    row(W::Shm, P::Cpu, Sure, "unable to write to file </torch_", "",
        "RuntimeError: unable to write to file </torch_77_123_4>: No space left on device (28)", "").says(SHARED),
    row(W::Shm, P::Cpu, Sure, "creating shared memory segment /dev/shm/", "",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-RZ3b (size 9637888)", "")
        .says("The shared memory (/dev/shm) that NCCL passes data through between processes is full; the GPU's memory is not what ran \
        out."),
    row(W::Killer, P::Cpu, Phrase, "exit code: 137", "", "Error: container stopped, exit code: 137", "").says(KILLED),
    row(W::Killer, P::Cpu, Phrase, "exit code (137)", "", "[main] terminated with exit code (137). Reason [Error]. Message:", "").says(KILLED),
    row(W::Killer, P::Cpu, Sure, "The node was low on resource: memory", "using {allocated}, which exceeds",
        "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Container trainer was using 62914560Ki, which exceeds its \
        request of 0.", "allocated 62914560 KiB")
        .says("The node's memory (not the GPU's) ran low, and Kubernetes evicted the pod, whose container used {allocated}."),
    row(W::Killer, P::Cpu, Sure, "memorystatus: killing", "", JETSAM, "").says(APPLE),
    row(W::Killer, P::Cpu, Sure, "killing_specific_process pid", "", "kernel: killing_specific_process pid 1879 [python3.11] (per-process-limit 10)",
        "").says(APPLE),
    row(W::Killer, P::Cpu, Phrase, "exit code is 137", "", "Container killed on request. Exit code is 137", "").says(KILLED),
    row(W::Killer, P::Cpu, Phrase, "exited with code 137", "", "trainer-1 exited with code 137", "").says(KILLED),
    row(W::Killer, P::Cpu, Phrase, "exit code -9", "", "Process train finished with exit code -9", "").says(KILLED),
    row(W::Killer, P::Cpu, Sure, "exitcode  : -9 (pid", "", "  exitcode  : -9 (pid: 4242)", "").says(KILLED),
    row(W::Killer, P::Cpu, Sure, "Failed with result 'oom-kill'", "", "systemd[1]: train.service: Failed with result 'oom-kill'.", "")
        .says(KERNEL_UNTOLD),
    row(W::Ray, P::Cpu, Sure, "RayOutOfMemoryError: More than", "is used ({allocated#} / {capacity}",
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node gpu-1 is used (61.25 / 62.50 GB).",
        "capacity 62.50 GiB, allocated 61.25 GiB")
        .says("The machine's memory (not the GPU's) ran low, so Ray stopped a task: {allocated} of {capacity} was in use."),
];
