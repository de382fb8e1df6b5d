"""[edge] The platform: ``up.py`` hub up and down, ``demo.py`` hub demo, ``doctor.py`` hub doctor,
``access.py`` hub access,
``processes.py`` the processes that the supervisor starts.
"""
