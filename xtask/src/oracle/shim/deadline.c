/* mq-deadline behind a queue: bios join or become requests, the device takes what the elevator gives, completions make
 * room. Steps: see `deadline.rs`. Written for this command; no text of a kernel. */
#include "block.h"
#include "rbtree.c"
#include "cut.c"
#include "mq-deadline.c"
static const char *const TUNABLES[] = { "read_expire", "write_expire", "writes_starved", "fifo_batch", "front_merges",
	"prio_aging_expire" };
#include "block_main.h"
