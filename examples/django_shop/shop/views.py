"""The shop's pages."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django_tasks.base import TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch

from shop.jobs import orders, pack
from shop.models import Order
from shop.tasks import receipt
from toril.integrations.django import on_commit


def order(request: HttpRequest, number: int) -> JsonResponse:
    if request.method == "POST":
        return _taken(number)
    return JsonResponse({"packed": get_object_or_404(Order, number=number).packed})


def _taken(number: int) -> JsonResponse:
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
            on_commit(orders, pack, number, job_id=f"pack-{number}")
            _check(number)
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse({"taken": number}, status=202)


def _check(number: int) -> None:
    if number == 13:
        raise ValueError("we do not sell that")  # the order is not stored, and its job is not added


def ask_for_receipt(_: HttpRequest, number: int) -> JsonResponse:
    return JsonResponse({"result": receipt.enqueue(number).id}, status=202)


def show_receipt(_: HttpRequest, result: str) -> JsonResponse:
    try:
        found = receipt.get_result(result)
    except (TaskResultDoesNotExist, TaskResultMismatch):
        return JsonResponse({"error": "there is no such receipt"}, status=404)
    if found.status == TaskResultStatus.FAILED:
        return JsonResponse({"status": found.status, "text": None}, status=409)
    return JsonResponse({"status": found.status, "text": found.return_value if found.is_finished else None})
