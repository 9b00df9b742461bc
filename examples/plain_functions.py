"""Plain functions, in threads by default and in processes where they compute. There is no `async` in this file."""

import asyncio

from toril import App, SyncJobContext, handler

app = App("sqlite:///plain.db")


def count_words(ctx: SyncJobContext[str]) -> int:
    ctx.log(f"{len(ctx.data)} characters")
    return len(ctx.data.split())


def sum_of_squares(ctx: SyncJobContext[int]) -> int:
    total = 0
    for step in range(10):
        ctx.raise_if_cancelled()
        total += sum(n * n for n in range(step, ctx.data, 10))
        ctx.update_progress((step + 1) * 10)
    return total


words = app.queue("words", [count_words])
sums = app.queue("sums", {"sum_of_squares": handler(sum_of_squares, executor="process", timeout=60)}, concurrency=2)


def main() -> None:
    counted = words.sync.add(count_words, "behind this gate the bulls wait", result_ttl=60)
    summed = [sums.sync.add(sum_of_squares, n, result_ttl=60) for n in (1_000, 100_000)]

    asyncio.run(app.run(burst=True))  # or, in another terminal:  toril run plain_functions:app

    print(counted.result(timeout=10), [job.result(timeout=10) for job in summed])


if __name__ == "__main__":
    main()
