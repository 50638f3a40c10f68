/* Loaded before libc into the server's processes: every flush takes as many microseconds longer as the file named by
   CHAOS_FSYNC says, read each time, so that a phase of a slow disk begins and ends while the server runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void nap(void)
{
    const char *path = getenv("CHAOS_FSYNC");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    long us = read(file, text, sizeof text - 1) > 0 ? atol(text) : 0;
    close(file);
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    if (us > 0)
        nanosleep(&wait, NULL);
}

int fdatasync(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    nap();
    return real(file);
}

int fsync(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    nap();
    return real(file);
}
