/* A disk that can lose power, be slow, or refuse to be written: preloaded into a process, for files of one folder.

FAULTY_DISK is the folder. FAULTY_DISK_IMAGE is another, in which every file is kept as a power cut would leave it: with
what has been synced, and nothing that was written since: a name that was given or taken away comes with a sync of the
folder, or of a file that has it since. In it the file `.slow` has microseconds that each sync takes longer, while there
is a file `.readonly` nothing can be written, and `.names` has what a sync of the folder will change. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 4096
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

typedef struct { off_t begin, end; } range;
typedef struct file { dev_t dev; ino_t ino; int whole, count; range ranges[MOST]; struct file *next; } file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static file *files;

/* The path of an open file below the folder, and that of its image; false for any other. */
static int inside(const char *path, char *image) {
    const char *folder = getenv("FAULTY_DISK"), *images = getenv("FAULTY_DISK_IMAGE");
    size_t length;
    if (!folder || !images || strncmp(path, folder, length = strlen(folder)) || path[length] != '/') return 0;
    if (strchr(path + length + 1, '/')) return 0;
    return snprintf(image, PATH_MAX, "%s%s", images, path + length) < PATH_MAX;
}

static int opened(int fd, char *image) {
    char link[64], path[PATH_MAX];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if ((length = readlink(link, path, sizeof path - 1)) < 0) return 0;
    path[length] = 0;
    return inside(path, image);
}

static int switched(const char *name, long *value) {
    char path[PATH_MAX], text[32] = "";
    const char *images = getenv("FAULTY_DISK_IMAGE");
    int fd;
    if (!images) return 0;
    snprintf(path, sizeof path, "%s/%s", images, name);
    if ((fd = REAL(open)(path, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    if (value && read(fd, text, sizeof text - 1) > 0) *value = atol(text);
    close(fd);
    return 1;
}

static int refuses(const char *image) {
    (void)image;
    if (!switched(".readonly", NULL)) return 0;
    errno = EROFS;
    return 1;
}

/* What was noted of an open file; the lock is held. One that is new is not known, and is copied as a whole. */
static file *noted(int fd) {
    struct stat found;
    file *one;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return NULL;
    for (one = files; one; one = one->next)
        if (one->dev == found.st_dev && one->ino == found.st_ino) return one;
    if (!(one = calloc(1, sizeof *one))) abort();
    *one = (file){.dev = found.st_dev, .ino = found.st_ino, .whole = 1, .next = files};
    return files = one;
}

static void note(int fd, off_t begin, off_t length) {
    pthread_mutex_lock(&lock);
    file *one = noted(fd);
    if (one && !one->whole) {
        if (one->count == MOST) one->whole = 1;
        else one->ranges[one->count++] = (range){begin, begin + length};
    }
    pthread_mutex_unlock(&lock);
}

static void copy(int from, int to, off_t begin, off_t end) {
    char buffer[1 << 16];
    while (begin < end) {
        size_t most = end - begin < (off_t)sizeof buffer ? (size_t)(end - begin) : sizeof buffer;
        ssize_t got = pread(from, buffer, most, begin);
        if (got <= 0) return;
        if (REAL(pwrite)(to, buffer, got, begin) != got) abort();
        begin += got;
    }
}

int unlink(const char *);
int rename(const char *, const char *);

static int names(char *path) {
    const char *images = getenv("FAULTY_DISK_IMAGE");
    int fd;
    snprintf(path, PATH_MAX, "%s/.names", images);
    if ((fd = REAL(open)(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0 || flock(fd, LOCK_EX)) abort();
    return fd;
}

/* Note that an image will get another name, or none, at the next sync of the folder. */
static void later(const char *from, const char *to) {
    char path[PATH_MAX], line[2 * PATH_MAX + 2];
    int fd = names(path), length = snprintf(line, sizeof line, "%s\t%s\n", from, to);
    if (REAL(write)(fd, line, length) != length) abort();
    close(fd);
}

/* Give images the names that their files have; only that of one file, if it is not NULL. */
static void settle_names(const char *only) {
    char path[PATH_MAX], *line = NULL, *rest = NULL;
    size_t room = 0, size = 0;
    int fd = names(path);
    FILE *noted = fdopen(fd, "r+"), *waiting = open_memstream(&rest, &size);
    if (!noted || !waiting) abort();
    while (getline(&line, &room, noted) > 0) {
        char *tab = strchr(line, '\t'), *to = tab + 1;
        *tab = 0;
        to[strcspn(to, "\n")] = 0;
        if (only && strcmp(only, *to ? to : line)) fprintf(waiting, "%s\t%s\n", line, to);
        else if (*to) REAL(rename)(line, to);
        else REAL(unlink)(line);
    }
    fclose(waiting);
    if (REAL(ftruncate)(fd, 0) || REAL(write)(fd, rest, size) != (ssize_t)size) abort();
    fclose(noted);
    free(rest);
    free(line);
}

static int is_folder(int fd) {
    char link[64], path[PATH_MAX];
    const char *folder = getenv("FAULTY_DISK");
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!folder || (length = readlink(link, path, sizeof path - 1)) < 0) return 0;
    path[length] = 0;
    return !strcmp(path, folder);
}

/* Bring the image of a file to what the file is now. */
static void settle(int fd, const char *image) {
    struct stat found;
    int to;
    pthread_mutex_lock(&lock);
    file *one = noted(fd);
    if (one && !fstat(fd, &found) && found.st_nlink) {
        settle_names(image);
        if (access(image, F_OK)) one->whole = 1;
        if ((to = REAL(open)(image, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0) abort();
        if (one->whole) copy(fd, to, 0, found.st_size);
        else for (int at = 0; at < one->count; at++) copy(fd, to, one->ranges[at].begin, one->ranges[at].end);
        if (REAL(ftruncate)(to, found.st_size)) abort();
        close(to);
        one->whole = one->count = 0;
    }
    pthread_mutex_unlock(&lock);
}

static int synced(int fd, int (*really)(int)) {
    char image[PATH_MAX];
    long slow = 0;
    if (is_folder(fd)) {
        int failed = really(fd);
        if (!failed) settle_names(NULL);
        return failed;
    }
    if (!opened(fd, image)) return really(fd);
    if (switched(".slow", &slow)) usleep(slow);
    int failed = really(fd);
    if (!failed) settle(fd, image);
    return failed;
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

ssize_t write(int fd, const void *data, size_t size) {
    char image[PATH_MAX];
    if (!opened(fd, image)) return REAL(write)(fd, data, size);
    if (refuses(image)) return -1;
    off_t at = fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    ssize_t done = REAL(write)(fd, data, size);
    if (done > 0) note(fd, at, done);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    char image[PATH_MAX];
    if (!opened(fd, image)) return REAL(pwrite)(fd, data, size, at);
    if (refuses(image)) return -1;
    ssize_t done = REAL(pwrite)(fd, data, size, at);
    if (done > 0) note(fd, at, done);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

int ftruncate(int fd, off_t size) {
    char image[PATH_MAX];
    if (!opened(fd, image)) return REAL(ftruncate)(fd, size);
    return refuses(image) ? -1 : REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static int opens(int (*really)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    char image[PATH_MAX];
    if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) && inside(path, image) && refuses(image)) return -1;
    return really(path, flags, mode);
}

#define MODE(flags, mode) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags, mode) return opens(REAL(open), path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return opens(REAL(open64), path, flags, mode); }

int unlink(const char *path) {
    char image[PATH_MAX];
    if (!inside(path, image)) return REAL(unlink)(path);
    if (refuses(image)) return -1;
    int failed = REAL(unlink)(path);
    if (!failed) later(image, "");
    return failed;
}

/* A file that was not synced before it got its name is the one of before after a power cut. */
int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    if (!inside(from, old) || !inside(to, new)) return REAL(rename)(from, to);
    if (refuses(old)) return -1;
    int failed = REAL(rename)(from, to);
    if (!failed) later(old, new);
    return failed;
}
