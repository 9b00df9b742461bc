"""The URLs of the pages."""

from django.urls import path

from shop import views

urlpatterns = [
    path("orders/<int:number>/", views.order),
    path("orders/<int:number>/receipt/", views.ask_for_receipt),
    path("receipts/<str:result>/", views.show_receipt),
]
