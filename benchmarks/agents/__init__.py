"""Coding agents over hours, scaled to minutes: how much is computed twice?"""
