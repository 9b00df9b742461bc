"""Everything that recurs, on one page. Three more scanners are declared next to what they repair.

The code decides: a worker that boots writes these schedules to the store, updates what has changed and removes what is
no longer here. `interval` reads intervals from the environment.
"""

import os
from typing import Final

from helpdesk.queues import (
    calendar_sync,
    dataset_maintenance,
    maintenance,
    polling_sync,
    recording_bot,
    scheduled_trigger,
)
from helpdesk.settings import seconds

__all__: list[str] = []

AT_NIGHT: Final = 240  # seconds over which nightly jobs are spread, each with its own fixed shift


def interval(variable: str, normal: float) -> float:
    return seconds(float(os.environ.get(variable, normal)))


# mailboxes, calendars, meetings, workflows

polls = polling_sync.queue
polls.schedule(
    "poll-mailboxes",
    "scan_mailboxes",
    every=interval("HELPDESK_POLL_EVERY", 300),
    priority=5,
    overlap="skip",
    subject="all",
)
polls.schedule(
    "go-on-importing",
    "scan_mailboxes",
    every=interval("HELPDESK_IMPORT_EVERY", 60),
    priority=5,
    overlap="skip",
    subject="all",
)
calendar_sync.queue.schedule("sync-calendars", "scan_calendars", cron="*/5 * * * *", priority=8)
recording_bot.queue.schedule("send-bots", "send_bots", cron="*/2 * * * *", priority=5)
recording_bot.queue.schedule("poll-bots", "poll_bots", cron="* * * * *", priority=5)
scheduled_trigger.queue.schedule("start-workflows", "start_due_workflows", every=seconds(60), overlap="skip")

# tokens, deadlines, suggestions, quotas

tasks = maintenance.queue
tasks.schedule("refresh-tokens", "refresh_tokens", every=seconds(900), priority=8, overlap="skip")
tasks.schedule("check-mailbox-tokens", "check_mailbox_tokens", cron="*/15 * * * *", priority=8)
tasks.schedule("remind-of-deadlines", "remind_of_deadlines", cron="* * * * *", attempts=2, priority=5)
tasks.schedule("suggest-next-actions", "suggest_next_actions", cron="*/5 * * * *", attempts=2, priority=7)
tasks.schedule("suggest-documents", "suggest_documents", cron="0 0 8 * * *", tz="Europe/Berlin", attempts=1)
tasks.schedule("check-storage-quota", "check_storage_quota", cron="0 4 * * *", attempts=1, priority=5)
tasks.schedule("reset-quotas", "reset_quotas", cron="0 1 * * *", priority=10)

# what is deleted

tasks.schedule("orphaned-files", "delete_orphaned_files", cron="0 * * * *", priority=10)
tasks.schedule("expired-media", "delete_expired_media", cron="0 * * * *", priority=15)
tasks.schedule("removed-files", "delete_removed_files", cron="0 2 * * *", priority=10, jitter=AT_NIGHT)
tasks.schedule("thumbnails", "delete_thumbnails", cron="0 3 * * *", priority=10, jitter=AT_NIGHT)
tasks.schedule("thumbnail-versions", "delete_old_thumbnail_versions", cron="0 4 * * 0", priority=10, jitter=AT_NIGHT)
tasks.schedule("app-bundles", "delete_app_bundles", cron="0 5 * * *", priority=10, jitter=AT_NIGHT)
dataset_maintenance.queue.schedule("orphaned-segments", "delete_orphaned_segments", cron="0 3 * * *", priority=10)

# only in the hosted version: elsewhere these are not created

tasks.schedule("subscription-changes", "apply_subscription_changes", cron="15 * * * *", priority=5)
tasks.schedule("subscriptions", "sync_subscriptions", cron="45 * * * *", priority=8)
tasks.schedule("demo-accounts", "delete_demo_accounts", cron="*/15 * * * *", priority=10)
tasks.schedule("expired-trials", "delete_expired_trials", cron="0 3 * * *", priority=10)
tasks.schedule("getting-started", "mail_getting_started", cron="*/30 * * * *", priority=8)
tasks.schedule("mid-trial", "mail_mid_trial", cron="0 10 * * *", priority=8)
tasks.schedule("trial-ends", "mail_trial_ends", cron="0 10 * * *", priority=8)
