/* The most memory that was resident since peak_reset(), looked at whenever some is about to be given back.
 *
 * Preloaded into a measured process. The kernel's own peak, VmHWM, is added up from counters of each CPU that may
 * lag behind by 32 pages: a quarter of a MiB on two cores. VmRSS is exact (Linux >= 6.16).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>

#define LARGE_BYTES 4096 /* of what is freed within the heap, which may shrink then */
#define MAPPED 2          /* glibc: the block is a mapping of its own */
#define FLAGS 7

static long most_kib;
static int on;
static void (*libc_free)(void *);
static void *(*libc_realloc)(void *, size_t);
static int (*libc_munmap)(void *, size_t);
static int (*libc_madvise)(void *, size_t, int);

static void look(void)
{
    char text[128];
    long total, resident;
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t count;

    if (file < 0)
        return;
    count = read(file, text, sizeof text - 1);
    close(file);
    if (count <= 0)
        return;
    text[count] = 0;
    if (sscanf(text, "%ld %ld", &total, &resident) == 2) {
        resident *= sysconf(_SC_PAGESIZE) / 1024;
        if (resident > most_kib)
            most_kib = resident;
    }
}

void peak_reset(void)
{
    most_kib = 0;
    on = 1;
    look();
}

long peak_kib(void)
{
    look();
    return most_kib;
}

void free(void *block)
{
    if (!libc_free)
        libc_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    if (on && block) {
        size_t size = ((size_t *)block)[-1];
        if (size & MAPPED || (size & ~(size_t)FLAGS) > LARGE_BYTES)
            look();
    }
    libc_free(block);
}

void *realloc(void *block, size_t size)
{
    if (!libc_realloc)
        libc_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if (on && block && ((size_t *)block)[-1] > size + LARGE_BYTES)
        look();
    return libc_realloc(block, size);
}

int munmap(void *start, size_t size)
{
    if (!libc_munmap)
        libc_munmap = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    if (on)
        look();
    return libc_munmap(start, size);
}

int madvise(void *start, size_t size, int advice)
{
    if (!libc_madvise)
        libc_madvise = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    if (on)
        look();
    return libc_madvise(start, size, advice);
}
