/* A map of tags alone: `lib/sbitmap.c`. Steps: see `tags.rs`. Written for this command; no text of a kernel. */
#include "tags.h"

int main(void)
{
	static struct sbitmap_queue map;
	static int taken[4096];
	struct step step;
	int nr_taken = 0, number;

	while (next_step(&step)) {
		switch (step.op) {
		case '#':
			if (map.ws)
				sbitmap_queue_free(&map);
			sbitmap_queue_init_node(&map, step.arg[0], -1, false, 0, 0);
			sbitmap_queue_min_shallow_depth(&map, 1);
			nr_taken = 0;
			continue;
		case '.':
			fflush(stdout);
			continue;
		case 'g':
		case 's':
			number = step.op == 'g' ? __sbitmap_queue_get(&map) : sbitmap_queue_get_shallow(&map, max(step.arg[0], 1L));
			if (number >= 0)
				taken[nr_taken++] = number;
			printf("%d\n", number);
			continue;
		case 'f':
			if (nr_taken) {
				int which = step.arg[0] % nr_taken;
				number = taken[which];
				sbitmap_queue_clear(&map, number, 0);
				taken[which] = taken[--nr_taken];
			}
			break;
		case 'z':
			sbitmap_queue_resize(&map, max(step.arg[0], 1L));
			break;
		case 'k':
			sbitmap_queue_min_shallow_depth(&map, max(step.arg[0], 1L));
			printf("%u\n", map.wake_batch);
			sbitmap_queue_min_shallow_depth(&map, 1);
			continue;
		}
		puts(".");
	}
	return 0;
}
