"""Routes of pages that change something: plan or check first, then a form that carries it out."""
